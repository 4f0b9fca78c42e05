"""The only room that writes the tables: one module a verb, one statement a file in `sql/`.

Every write after a claim is fenced by the pair (job id, fencing token) and the status RUNNING; see
`docs/design/interleavings.md` for which statement decides what.
"""

from django_reliable_jobs.store.statements import load_all as load_statements

__all__ = ["load_statements"]
