-- The exchange: what has finished is settled and what may run is claimed, in one statement, one commit, one round trip.
{parts/settle}
{parts/candidates}
{parts/claim}
), claimed AS (
    {parts/claimed}
)
SELECT (SELECT array_agg(settled.fencing_token) FROM settled), looked.places, looked.counts,
       (SELECT bool_or(ranked.too_much) FROM ranked WHERE ranked.rank <= %(free)s::int + %(ahead)s::int),
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM (SELECT array_agg(c.place), array_agg(c.count)
          FROM (SELECT place::int, count(*)::int FROM candidate GROUP BY place) AS c (place, count)) AS looked (places, counts)
 UNION ALL
SELECT NULL, NULL, NULL, NULL, claimed.* FROM claimed
