"""`run_exclusive` and `run_once` on each store, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread

import pytest
from django.db import connections, transaction

from django_reliable_jobs.errors import LeaseLost
from django_reliable_jobs.guards import GuardResult, current_lease, run_exclusive, run_once
from django_reliable_jobs.guards.guard import Guard
from django_reliable_jobs.guards.lease import GuardLease
from django_reliable_jobs.models import GuardClaim
from tests.support.guards.app.models import Entry
from tests.support.guards.fixtures import NULL, Configure
from tests.support.sessions import together, wait_until

LONG = 10 * 365 * 86_400


def steal(kind: str, key: str, lease: GuardLease | None = None) -> None:
    """What the store sees when a lease has expired and somebody else has the key."""
    guard = Guard.of(kind, key, None)
    lease = lease or current_lease()
    assert lease is not None
    assert guard.release(lease.token)
    assert guard.acquire(60) is not None


def spin(seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_the_function_runs_with_its_arguments_and_its_value_comes_back(store: str) -> None:
    result = run_exclusive("import", 30, lambda a, *, b: a + b, 1, b=2)
    assert result == GuardResult(True, 3)
    assert result
    assert run_exclusive("import", 30, lambda: "again").value == "again", "the key is free after a run"


def test_nobody_else_runs_meanwhile(store: str) -> None:
    def inner() -> GuardResult[str]:
        (elsewhere,) = together(lambda: run_exclusive("import", 30, lambda: "two at once"))
        assert elsewhere == run_exclusive("import", 30, lambda: "two at once"), "the same thread is refused as well"
        return elsewhere

    result = run_exclusive("import", 30, inner)
    assert result.value == GuardResult(False)
    assert not result.value


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_frees_the_key_and_is_the_callers(store: str, error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("no")

    for run in (lambda: run_exclusive("import", 30, fail), lambda: run_once("import", LONG, fail)):
        with pytest.raises(error, match="no"):
            run()
        assert current_lease() is None
    assert run_exclusive("import", 30, lambda: 1)
    assert run_once("import", LONG, lambda: 1)


def test_what_has_succeeded_once_does_not_run_again_in_its_period(store: str) -> None:
    assert run_once("report", LONG, lambda: "sent") == GuardResult(True, "sent")
    assert run_once("report", LONG, lambda: "twice") == GuardResult(False)
    assert run_once("report", None, lambda: "for good") == GuardResult(False)
    assert run_once("setup", None, lambda: "for good")
    assert not run_once("setup", 1, lambda: "again")


def test_in_the_next_period_it_runs_again(store: str) -> None:
    runs: list[int] = []
    wait_until(lambda: bool(run_once("tick", 1, lambda: runs.append(1)) and len(runs) > 2), "three seconds come")


def test_a_run_that_lasts_beyond_its_period_leaves_the_next_one_free(store: str) -> None:
    started = time.monotonic()
    assert run_once("tick", 1, lambda: time.sleep(1.1))
    assert run_once("tick", 1, lambda: 1), f"after {time.monotonic() - started:.1f} s"


def test_while_it_runs_nobody_else_runs_it(store: str) -> None:
    def inner() -> list[GuardResult[int]]:
        return together(lambda: run_once("report", LONG, lambda: 2), lambda: run_once("report", 1, lambda: 3))

    assert run_once("report", LONG, inner).value == [GuardResult(False)] * 2


def test_a_lease_is_renewed_for_as_long_as_the_function_runs(store: str) -> None:
    def outlast_the_ttl() -> list[bool]:
        until = time.monotonic() + 2.5
        seen = []
        while time.monotonic() < until:
            seen.append(bool(together(lambda: run_exclusive("import", 1, lambda: None))[0]))
        return seen

    seen = run_exclusive("import", 1, outlast_the_ttl).value
    assert seen is not None
    assert len(seen) > 5
    assert not any(seen)


@pytest.mark.parametrize("kind", ["exclusive", "run"])
def test_a_function_whose_lease_is_lost_is_stopped_and_so_is_the_call(
    store: str, kind: str, configure: Configure, settings: object
) -> None:
    told: list[object] = []

    def lose() -> None:
        lease = current_lease()
        assert lease is not None
        steal(kind, "import")
        try:
            spin()
        except LeaseLost:
            told.extend([lease.lost.is_set(), "LeaseLost"])
            raise

    settings.RELIABLE_JOBS = settings.RELIABLE_JOBS | {"LEASE": 1}  # type: ignore[attr-defined]
    with pytest.raises(LeaseLost, match="the lease with token .* is lost"):
        run_exclusive("import", 1, lose) if kind == "exclusive" else run_once("import", LONG, lose)
    assert told == [True, "LeaseLost"]
    assert (
        not run_exclusive("import", 30, lambda: 1) if kind == "exclusive" else not run_once("import", LONG, lambda: 1)
    )


def test_a_function_that_asks_is_told_and_needs_no_exception(store: str) -> None:
    def lose() -> str:
        lease = current_lease()
        assert lease is not None
        steal("exclusive", "import")
        assert lease.lost.wait(30)
        lease.check()
        raise AssertionError

    with pytest.raises(LeaseLost):
        run_exclusive("import", 1, lose)
    spin(0.3)  # an exception that is still on its way would come now


def test_a_loss_that_is_noticed_at_the_end_only_is_no_success(store: str) -> None:
    def lose() -> str:
        steal("exclusive", "import")
        return "done, but perhaps not alone"

    with pytest.raises(LeaseLost):
        run_exclusive("import", 30, lose)


def test_the_lease_of_somebody_else_survives_the_end_of_the_loser(store: str) -> None:
    guard = Guard.of("exclusive", "import", None)

    def lose() -> None:
        steal("exclusive", "import")
        raise ValueError

    with pytest.raises(ValueError):
        run_exclusive("import", 30, lose)
    assert guard.acquire(30) is None, "the thief still has it"


def test_tokens_rise_from_lease_to_lease(store: str) -> None:
    def token() -> int:
        lease = current_lease()
        assert lease is not None
        return lease.token

    tokens = [run_exclusive(key, 30, token).value for key in ("a", "a", "b", "a")]
    tokens += [run_once(key, LONG, token).value for key in ("a", "b")]
    assert tokens == sorted(set(tokens))  # type: ignore[type-var]


def test_runs_can_be_nested_and_each_sees_its_own_lease(store: str) -> None:
    def outer() -> list[str]:
        keys = [current_lease().key]  # type: ignore[union-attr]
        run_exclusive("inner", 30, lambda: keys.append(current_lease().key))  # type: ignore[union-attr]
        return [*keys, current_lease().key]  # type: ignore[union-attr]

    assert run_exclusive("outer", 30, outer).value == ["outer", "inner", "outer"]
    assert current_lease() is None


def test_an_outer_lease_that_is_lost_stops_the_inner_run_too(store: str) -> None:
    def outer() -> None:
        steal("exclusive", "outer")
        run_exclusive("inner", 30, spin)

    with pytest.raises(LeaseLost, match="'outer'"):
        run_exclusive("outer", 1, outer)
    assert run_exclusive("inner", 30, lambda: 1), "the inner key was released"


def test_of_two_lost_leases_the_outer_one_is_not_forgotten(store: str) -> None:
    """A thread has room for one exception from outside: the second may have replaced the first."""

    def outer() -> None:
        leases = {"outer": current_lease()}

        def thief() -> None:
            for key, lease in leases.items():
                steal("exclusive", key, lease)
            connections.close_all()

        def inner() -> None:
            leases["inner"] = current_lease()
            thread = Thread(target=thief)
            while True:
                try:  # whatever hits this thread, hits it in here, or when both are lost
                    if thread.ident is None:
                        thread.start()
                    while not all(lease and lease.lost.is_set() for lease in leases.values()):
                        spin(0.01)
                    break
                except LeaseLost:
                    pass
            thread.join()

        run_exclusive("inner", 1, inner)

    with pytest.raises(LeaseLost, match="'outer'"):
        run_exclusive("outer", 1, outer)


@pytest.mark.parametrize("verb", ["run_exclusive", "run_once"])
def test_in_a_transaction_they_refuse_to_run(database: None, verb: str) -> None:
    run: Callable[[], object] = {
        "run_exclusive": lambda: run_exclusive("k", 30, Entry.objects.create, label="no"),
        "run_once": lambda: run_once("k", LONG, Entry.objects.create, label="no"),
    }[verb]
    with transaction.atomic(), pytest.raises(RuntimeError, match=f"{verb}.*in a transaction on 'default'"):
        run()
    connection = connections["default"]
    connection.set_autocommit(False)
    try:
        with pytest.raises(RuntimeError, match="in a transaction"):
            run()
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert not GuardClaim.objects.exists()
    assert run()


def test_the_null_store_runs_everything(database: None, configure: Configure) -> None:
    configure(STORE=NULL)
    assert run_once("report", LONG, lambda: 1)
    assert run_once("report", LONG, lambda: current_lease().token).value > 0  # type: ignore[union-attr, operator]
    assert run_exclusive("import", 1, lambda: run_exclusive("import", 1, lambda: 1)).value


@pytest.mark.django_db
def test_in_a_test_case_they_work_within_the_tests_transaction() -> None:
    """pytest-django's `db`, as Django's TestCase, puts a transaction around each test; that is nobody's own."""
    assert run_exclusive("import", 1, time.sleep, 1.2), "nobody says that it is lost"
    assert run_once("report", LONG, lambda: 1)
    assert not run_once("report", LONG, lambda: 1)
    with transaction.atomic(), pytest.raises(RuntimeError, match="in a transaction"):
        run_once("other", LONG, lambda: 1)


@pytest.mark.django_db
def test_the_tests_transaction_leaves_nothing_for_the_next_test() -> None:
    assert run_once("report", LONG, lambda: 1)
