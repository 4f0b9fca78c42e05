"""What an owner writes, with its token, to each thing that is fenced."""

from __future__ import annotations

import os

from django.db import transaction

from django_reliable_jobs import StaleToken
from django_reliable_jobs.fencing import fence
from tests.support.guards.app.models import Entry, Sheet


def write(token: int) -> dict[str, str]:
    """What was answered: "written", or that it was refused."""
    from tests.support.guards.worked_example import store_if_newer

    def through_the_fence() -> None:
        with transaction.atomic():
            Entry.objects.create(label="fenced", token=token, pid=os.getpid())
            fence("thing", token)

    def to_the_row() -> None:
        Sheet.objects.filter(name="thing").fenced_update(token, text=f"by {token}")

    outcome = {}
    for name, act in (("fence", through_the_fence), ("row", to_the_row)):
        try:
            act()
            outcome[name] = "written"
        except StaleToken:
            outcome[name] = "StaleToken"
    if url := os.environ.get("VALKEY_URL"):
        import redis

        with redis.Redis.from_url(url) as client:
            outcome["redis"] = "written" if store_if_newer(client, "thing", token, f"by {token}") else "refused"
    return outcome
