"""Which store is used, and that a wrong one is told of before a guard is asked."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_reliable_jobs.checks import deployment as checks
from django_reliable_jobs.guards import claim_once
from django_reliable_jobs.guards.null import NullStore
from django_reliable_jobs.guards.protocol import current_store
from tests.support.guards.fixtures import NULL, REDIS, Configure

HERE = "tests.database.guards.test_stores"


class OwnStore(NullStore):
    def __init__(self, shelf: str) -> None:
        self.shelf = shelf


class Forgetful:
    """It takes keys and gives none back."""

    in_database = False

    def acquire(self, *args: Any) -> int:
        return 1

    renew = now = acquire


class Undecided(NullStore):
    in_database = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("path", "options", "complaint"),
    [
        ("nowhere.Store", {}, "No module named 'nowhere'"),
        ("django_reliable_jobs.guards.database.NoStore", {}, "does not define"),
        ("DatabaseStore", {}, "module path"),
        (f"{HERE}.OwnStore", {}, "shelf"),
        (f"{HERE}.OwnStore", {"drawer": 1}, "drawer"),
        (f"{HERE}.Forgetful", {}, "is no GuardStore: no release"),
        (f"{HERE}.Undecided", {}, "is no GuardStore: no in_database"),
        ("builtins.dict", {}, "is no GuardStore: no acquire"),
        ("builtins.len", {}, "takes exactly one argument"),
        (REDIS, {"url": "file:///etc"}, "scheme"),
    ],
)
def test_a_store_that_cannot_be_used_is_an_error_of_the_system_checks_and_of_the_first_call(
    configure: Configure, path: str, options: dict[str, Any], complaint: str
) -> None:
    configure(STORE=path, OPTIONS=options)
    (message,) = checks.check_guard_store()
    assert message.id == "reliable_jobs.E007"
    assert path in message.msg
    assert complaint in message.msg
    with pytest.raises(ImproperlyConfigured, match='RELIABLE_JOBS\\["GUARDS"\\]'):
        claim_once("event")


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("django_reliable_jobs.guards.database.DatabaseStore", {}),
        (NULL, {}),
        (REDIS, {"url": "redis://nowhere.invalid:6379/0"}),  # nobody is asked
        (f"{HERE}.OwnStore", {"shelf": "top"}),
    ],
)
def test_a_store_that_can_be_made_is_fine(configure: Configure, path: str, options: dict[str, Any]) -> None:
    configure(STORE=path, OPTIONS=options)
    assert checks.check_guard_store() == []
    assert current_store() is current_store()


def test_a_store_of_ones_own_gets_its_options_and_is_asked(database: None, configure: Configure) -> None:
    configure(STORE=f"{HERE}.OwnStore", OPTIONS={"shelf": "top"})
    store = current_store()
    assert isinstance(store, OwnStore)
    assert store.shelf == "top"
    assert claim_once("event")


def test_wrong_settings_are_another_checks_business(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"GUARDS": {"STORE": 5}}
    assert checks.check_guard_store() == []
