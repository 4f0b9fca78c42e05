-- What the role of this session lacks of the rights that are wanted, each of them asked for one relation.
SELECT wanted.relation, wanted.privilege, current_user::text
  FROM unnest(%(relations)s::text[], %(kinds)s::text[], %(privileges)s::text[]) AS wanted (relation, kind, privilege)
  LEFT JOIN pg_class AS there ON there.oid = to_regclass(quote_ident(wanted.relation))
 WHERE there.oid IS NOT NULL
   AND NOT CASE wanted.kind WHEN 'sequence' THEN has_sequence_privilege(there.oid, wanted.privilege)
                            ELSE has_table_privilege(there.oid, wanted.privilege) END
 ORDER BY wanted.relation, wanted.privilege
