-- How large a job's arguments are, about, without reading those that are stored apart from the row. Compressed ones count tenfold.
               least(2000000000,
                     pg_column_size(job.args)::bigint * CASE WHEN pg_column_compression(job.args) IS NULL THEN 1 ELSE 10 END
                     + pg_column_size(job.kwargs)::bigint * CASE WHEN pg_column_compression(job.kwargs) IS NULL THEN 1 ELSE 10 END
               )::int AS payload_bytes
