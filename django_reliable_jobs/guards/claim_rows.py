"""Rows of the user's own models, each handed to one caller."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import connections, router, transaction
from django.db.models import Model, QuerySet

from django_reliable_jobs.errors import ReliableJobsError

M = TypeVar("M", bound=Model)


def claim_rows(queryset: QuerySet[M], limit: int, **changes: Any) -> list[M]:
    """Give up to `limit` rows of `queryset` these changes and return those rows, and no others, in its order.

        tickets = claim_rows(Ticket.objects.filter(state="new").order_by("id"), 10, state="taken", taken_by=me)

    Callers at the same time get different rows: rows that somebody holds locked are skipped, so that fewer than `limit`
    may come back while more are there. What `queryset` asks for is asked again once the rows are locked, so that a row
    which somebody has just changed is left alone, also when it is another table that says so.

    The changes have to take a row out of `queryset`, or the next caller gets it again. They are written as by
    `QuerySet.update`: no signals, no `auto_now`. Joins the caller's transaction, and the rows are then locked until its
    end; otherwise they are committed when this returns.
    """
    if not changes:
        raise TypeError("claim_rows() needs changes: without one the next caller would get the same rows.")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit is a number of rows, at least 1, not {limit!r}.")
    if queryset.query.is_sliced:
        raise TypeError("claim_rows() takes a queryset that is not sliced; the limit is an argument of its own.")
    model = queryset.model
    alias = _asked_for(queryset) or router.db_for_write(model)
    queryset = queryset.using(alias)
    options: dict[str, Any] = {"skip_locked": True}
    if connections[alias].features.has_select_for_update_of:
        options["of"] = ("self",)
    if connections[alias].features.has_select_for_no_key_update:
        # The stronger lock would skip every row that a new foreign key refers to.
        options["no_key"] = True
    with transaction.atomic(using=alias, savepoint=False):
        locked = {row.pk: row for row in queryset.select_for_update(**options)[:limit]}
        # A second statement has a newer snapshot: it sees what was committed before the rows were locked.
        mine = set(queryset.filter(pk__in=locked).values_list("pk", flat=True)) if locked else set()
        rows = [row for pk, row in locked.items() if pk in mine]
        written = model._base_manager.using(alias).filter(pk__in=mine)
        if mine and written.update(**changes) != len(mine):
            raise ReliableJobsError(f"{model._meta.label}: the database did not change all {len(mine)} claimed rows.")
        _show(rows, changes, written)
    return rows


def _asked_for(queryset: QuerySet[Any]) -> str | None:
    """The alias of `using()`, if the caller chose one."""
    alias: str | None = getattr(queryset, "_db", None)
    return alias


def _show(rows: list[Any], changes: dict[str, Any], written: QuerySet[Any]) -> None:
    """Have the instances bear what was written; what the database computed is read back."""
    names = [name for name, value in changes.items() if hasattr(value, "resolve_expression")]
    computed = {row.pop("pk"): row for row in written.values("pk", *names)} if rows and names else {}
    for row in rows:
        for name, value in (changes | computed.get(row.pk, {})).items():
            setattr(row, name, value)


async def aclaim_rows(queryset: QuerySet[M], limit: int, **changes: Any) -> list[M]:
    """`claim_rows` for coroutines."""
    return cast(list[M], await sync_to_async(claim_rows)(queryset, limit, **changes))
