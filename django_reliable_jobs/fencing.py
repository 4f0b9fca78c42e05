"""Fencing: the write of an owner that has been replaced is refused, however late it wakes up.

A lease cannot keep its old owner from writing: between its last look at the lease and its write it may have been stopped
for longer than the lease lasts. The write itself has to tell. Every owner (a job, a cron run, a lease of
`guards.run_exclusive`) has a token from one sequence, so a later owner's is greater; whoever writes shows its token, and
what was written by a newer one stays.
"""

from __future__ import annotations

from typing import Any, ClassVar

from asgiref.sync import sync_to_async
from django.db import connections, models, transaction
from django.db.transaction import TransactionManagementError
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs import conf
from django_reliable_jobs.errors import StaleToken
from django_reliable_jobs.running.context import current_job
from django_reliable_jobs.store import fences
from django_reliable_jobs.store.settle_atomic import bound_idle
from django_reliable_jobs.values.names import check_text

__all__ = ["FencedModel", "FencedQuerySet", "StaleToken", "fence"]

MAX_NAME = 255


def fence(name: str, token: int, using: str | None = None) -> None:
    """Let only the newest owner of `name` commit this transaction.

        with transaction.atomic():
            fence("stock", ctx.fencing_token)
            ...  # whatever the transaction writes

    Raises StaleToken if a newer token has passed; then let the whole transaction roll back. Otherwise the fence's row
    stays locked until the commit: a newer owner waits for it, so what is committed here comes before what it writes.
    TransactionManagementError outside of `atomic()`, where nothing would be held.

    One fence name has one owner at a time: live jobs that share a name refuse each other by the order of their claims.
    Give each thing that has an owner a name of its own (`f"import:{import_id}"`), and use the same name in every attempt.
    Tokens compare only within one database: `using` (default: `RELIABLE_JOBS["DATABASE"]`) is where the fence's row is,
    where the token came from, and what the transaction has to be open on.

    In a job with a timeout the server ends the transaction if it is idle for longer than the time that is left and the
    grace time, so that a process which is stopped inside does not hold the fence for ever. Elsewhere set
    `idle_in_transaction_session_timeout` for the role.
    """
    alias = using or conf.current().database
    try:
        check_text(name, "a fence's name", MAX_NAME)
    except TypeError as error:
        raise ValueError(str(error)) from None
    _check_token(token)
    if not connections[alias].in_atomic_block:
        raise TransactionManagementError(f"fence({name!r}) has to be called inside atomic(using={alias!r}).")
    job = current_job()
    left = None if job is None else job.time_left()
    if left is not None:
        bound_idle(alias, max(left, 0) + conf.current().grace)
    if not fences.enter(alias, name, token):
        raise StaleToken(f"fence {name!r}: a newer owner than the one with token {token} has passed it.")


class FencedQuerySet(models.QuerySet[Any]):
    """`fenced_update` for the rows of a `FencedModel`."""

    def fenced_update(self, token: int, **changes: Any) -> int:
        """Update the rows and stamp them with `token`; how many.

        Raises StaleToken, and changes nothing, if a newer owner has stamped one of them. Each row is its own fence: two
        owners of different rows do not meet. Only this method looks at the stamp; `save()` and `update()` do not.
        """
        _check_token(token)
        if "fencing_token" in changes:
            raise TypeError("fenced_update() sets fencing_token itself, to the token that it is given.")
        self._for_write = True
        queryset = self.using(self.db)
        with transaction.atomic(using=self.db):
            changed = queryset.filter(fencing_token__lte=token).update(**changes, fencing_token=token)
            # Rows of newer owners are as they were, so they are still among the rows that were asked for.
            if queryset.filter(fencing_token__gt=token).exists():
                raise StaleToken(
                    f"{self.model._meta.label}: a newer owner than the one with token {token} has written here."
                )
        return changed

    async def afenced_update(self, token: int, **changes: Any) -> int:
        """`fenced_update` for coroutines."""
        return await sync_to_async(self.fenced_update)(token, **changes)


class FencedModel(models.Model):
    """Base for models whose rows remember the token of their last writer.

    Report.objects.filter(day=day).fenced_update(ctx.fencing_token, total=total)
    """

    fencing_token = models.BigIntegerField(_("fencing token"), default=0, editable=False)

    objects: ClassVar[models.Manager[Any]] = FencedQuerySet.as_manager()

    class Meta:
        abstract = True


def _check_token(token: int) -> None:
    if isinstance(token, bool) or not isinstance(token, int) or not 0 < token < 2**63:
        raise ValueError(
            f"a fencing token is a number above 0 (of a job, a cron run or a guard's lease), not {token!r}."
        )
