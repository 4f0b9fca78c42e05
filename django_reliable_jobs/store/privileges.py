"""Which rights the database role of a worker lacks, as the GRANT statements to run (see `docs/how-to/least-rights.md`)."""

from __future__ import annotations

from django.apps import apps

from django_reliable_jobs.store.statements import run

#: On every table of this package: handlers may do all that the package can do.
ON_TABLES = ("SELECT", "INSERT", "UPDATE", "DELETE")
#: Of fencing tokens, which are compared too; and of the ids of jobs, which a schedule that fires draws beforehand.
ON_SEQUENCES = {
    "django_reliable_jobs_fencing_token": ("SELECT", "USAGE"),
    "django_reliable_jobs_job_id_seq": ("USAGE",),
}


def missing(alias: str) -> list[str]:
    """GRANT statements that give this role what a worker needs; none when it has it all. For PostgreSQL."""
    wanted = [(name, "table", right) for name in tables() for right in ON_TABLES]
    wanted += [(name, "sequence", right) for name, rights in ON_SEQUENCES.items() for right in rights]
    relations, kinds, privileges = (list(column) for column in zip(*wanted, strict=True))
    rows = run(alias, "privileges", {"relations": relations, "kinds": kinds, "privileges": privileges})
    lacking: dict[str, list[str]] = {}
    for relation, privilege, _ in rows:
        lacking.setdefault(relation, []).append(privilege)
    together: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for relation, found in lacking.items():
        together.setdefault((relation in ON_SEQUENCES, tuple(sorted(found, key=_in_order))), []).append(relation)
    return [
        f"GRANT {', '.join(rights)} ON {'SEQUENCE ' if is_sequence else ''}{', '.join(names)} TO {_quoted(rows[0][2])};"
        for (is_sequence, rights), names in together.items()
    ]


def _in_order(right: str) -> int:
    return (*ON_TABLES, "USAGE").index(right)


def tables() -> list[str]:
    """The tables of this package."""
    return sorted(model._meta.db_table for model in apps.get_app_config("django_reliable_jobs").get_models())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
