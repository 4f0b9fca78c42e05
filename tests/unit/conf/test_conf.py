from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from django_reliable_jobs import conf
from django_reliable_jobs.values.backoff import Backoff

#: The machine may be busy: time is not what these tests are about.
unhurried = hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

DAY = 86_400


def problem(**raw: Any) -> conf.SettingProblem:
    """The only problem of these settings."""
    (found,) = conf.problems(raw)
    return found


def test_the_defaults_are_those_of_the_design(settings: Any) -> None:
    settings.RELIABLE_JOBS = {}
    expected = {
        "database": "default",
        "lease": 30,
        "heartbeat": 10,
        "poll": 1.0,
        "listen": True,
        "listen_database": None,
        "max_attempts": 5,
        "timeout": 3600,
        "backoff": Backoff(base=10, factor=2, cap=3600),
        "grace": 20,
        "prefetch": "auto",
        "unknown_job_after": 3600,
        "max_payload_bytes": 1_000_000,
        "retention": {"DONE": 7 * DAY, "CANCELLED": 7 * DAY, "DEAD": None, "CRON_RUN": 90 * DAY},
        "keep_attempts": 100,
        "queues": {},
        "guards": {"STORE": "django_reliable_jobs.guards.database.DatabaseStore", "OPTIONS": {}, "TIMEOUT": 2},
        "migrate": {"DATABASE": None, "LOCK_TIMEOUT": 600, "KEY": None, "POOLER": False},
        "release": None,
    }
    current = conf.current()
    assert {field.name: getattr(current, field.name) for field in dataclasses.fields(current)} == expected
    del settings.RELIABLE_JOBS
    assert conf.current() == current


def test_the_settings_are_read_once_and_again_when_they_change(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"LEASE": 60}
    first = conf.current()
    assert first.lease == 60
    assert conf.current() is first
    settings.RELIABLE_JOBS = {"LEASE": 90}
    assert conf.current().lease == 90
    settings.DEBUG = not settings.DEBUG
    assert conf.current().lease == 90


def test_importing_reads_no_settings() -> None:
    code = "from django_reliable_jobs import conf; from django.conf import settings; assert not settings.configured"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_what_current_returns_cannot_be_changed(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"QUEUES": {"mail": {}}}
    current = conf.current()
    with pytest.raises(dataclasses.FrozenInstanceError):
        current.lease = 1  # type: ignore[misc]
    for mapping in (current.retention, current.queues, current.queues["mail"], current.guards, current.migrate):
        with pytest.raises(TypeError):
            mapping["DONE"] = 1  # type: ignore[index]


def test_threads_that_ask_at_once_get_equal_settings(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"LEASE": 45}
    start = threading.Barrier(8)
    found: list[conf.Settings] = []

    def ask() -> None:
        start.wait()
        found.append(conf.current())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert {settings.lease for settings in found} == {45}


def test_nested_dicts_are_merged_with_their_defaults(settings: Any) -> None:
    settings.RELIABLE_JOBS = {
        "RETENTION": {"DEAD": timedelta(days=30), "DONE": None},
        "BACKOFF": {"cap": 60},
        "GUARDS": {"TIMEOUT": timedelta(seconds=5)},
        "MIGRATE": {"KEY": -5, "POOLER": True},
    }
    current = conf.current()
    assert current.retention == {"DONE": None, "CANCELLED": 7 * DAY, "DEAD": 30 * DAY, "CRON_RUN": 90 * DAY}
    assert current.backoff == Backoff(base=10, factor=2, cap=60)
    assert current.guards == {
        "STORE": "django_reliable_jobs.guards.database.DatabaseStore",
        "OPTIONS": {},
        "TIMEOUT": 5,
    }
    assert current.migrate == {"DATABASE": None, "LOCK_TIMEOUT": 600, "KEY": -5, "POOLER": True}


def test_durations_may_be_timedeltas_and_become_seconds(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"LEASE": timedelta(minutes=1), "TIMEOUT": timedelta(hours=1), "GRACE": timedelta(0)}
    current = conf.current()
    assert (current.lease, current.timeout, current.grace) == (60.0, 3600.0, 0.0)
    assert type(current.lease) is float


def test_none_means_no_limit_where_that_exists(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"TIMEOUT": None, "MAX_ATTEMPTS": None, "LISTEN_DATABASE": None}
    assert conf.current().timeout is None
    assert conf.current().max_attempts is None


def test_a_backoff_may_be_given_as_one(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"BACKOFF": Backoff(base=1, cap=5)}
    assert conf.current().backoff == Backoff(base=1, cap=5)


def test_a_shorter_lease_alone_shortens_the_heartbeat(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"LEASE": 15}
    assert conf.current().heartbeat == 5
    settings.RELIABLE_JOBS = {"LEASE": 600}
    assert conf.current().heartbeat == 10


@pytest.mark.parametrize("heartbeat", [30, 10.1, timedelta(seconds=15)])
def test_a_heartbeat_above_a_third_of_the_lease_is_refused_with_both_names(heartbeat: Any) -> None:
    found = problem(LEASE=30, HEARTBEAT=heartbeat)
    assert found.key == "HEARTBEAT"
    assert 'RELIABLE_JOBS["HEARTBEAT"]' in found.message
    assert "LEASE (30 seconds)" in found.message
    assert found.hint


@pytest.mark.parametrize("lease", [30, 1, 10, 0.1 * 11, 100 / 7])
def test_a_heartbeat_of_exactly_a_third_is_fine(lease: float) -> None:
    assert conf.problems({"LEASE": lease, "HEARTBEAT": lease / 3, "POLL": lease}) == []


def test_a_poll_that_is_longer_than_the_lease_is_refused_with_both_names() -> None:
    found = problem(LEASE=30, POLL=31)
    assert found.key == "POLL"
    assert "POLL" in found.message
    assert "LEASE" in found.message


WRONG = [
    ("DATABASE", None),
    ("DATABASE", ""),
    ("DATABASE", 5),
    ("LEASE", 0),
    ("LEASE", 0.5),
    ("LEASE", -30),
    ("LEASE", None),
    ("LEASE", "30"),
    ("LEASE", True),
    ("LEASE", math.nan),
    ("LEASE", math.inf),
    ("HEARTBEAT", 0),
    ("HEARTBEAT", -1),
    ("HEARTBEAT", timedelta(0)),
    ("POLL", 0),
    ("POLL", None),
    ("LISTEN", "yes"),
    ("LISTEN", 1),
    ("LISTEN", None),
    ("LISTEN_DATABASE", True),
    ("LISTEN_DATABASE", ""),
    ("MAX_ATTEMPTS", 0),
    ("MAX_ATTEMPTS", 2**31),
    ("MAX_ATTEMPTS", 2.0),
    ("MAX_ATTEMPTS", True),
    ("TIMEOUT", 0),
    ("TIMEOUT", -5),
    ("TIMEOUT", 10**12),
    ("BACKOFF", 10),
    ("BACKOFF", [10]),
    ("BACKOFF", {"base": -1}),
    ("BACKOFF", {"factor": 0.5}),
    ("BACKOFF", {"cap": 5}),
    ("BACKOFF", {"bass": 5}),
    ("BACKOFF", {5: 5}),
    ("GRACE", -1),
    ("PREFETCH", "yes"),
    ("PREFETCH", -1),
    ("PREFETCH", True),
    ("PREFETCH", None),
    ("UNKNOWN_JOB_AFTER", -1),
    ("RELEASE", ""),
    ("RELEASE", "a b"),
    ("RELEASE", "shop@eu"),
    ("RELEASE", "x" * 65),
    ("RELEASE", "eu\n"),
    ("RELEASE", 3),
    ("UNKNOWN_JOB_AFTER", None),
    ("MAX_PAYLOAD_BYTES", 0),
    ("MAX_PAYLOAD_BYTES", 2**30),
    ("MAX_PAYLOAD_BYTES", 1e6),
    ("RETENTION", None),
    ("KEEP_ATTEMPTS", 0),
    ("KEEP_ATTEMPTS", None),
    ("KEEP_ATTEMPTS", 2.5),
    ("RETENTION.DONE", -1),
    ("RETENTION.DEAD", "for ever"),
    ("QUEUES", ["mail"]),
    ("QUEUES", {5: {}}),
    ("QUEUES", {"": {}}),
    ("QUEUES", {"q" * 101: {}}),
    ("QUEUES", {"mail": 4}),
    ("QUEUES", {"mail": {"slots": 4}}),
    ("GUARDS.STORE", None),
    ("GUARDS.TIMEOUT", 0),
    ("MIGRATE", 600),
    ("MIGRATE.KEY", "abc"),
    ("MIGRATE.KEY", 2**63),
    ("MIGRATE.LOCK_TIMEOUT", -1),
    ("MIGRATE.POOLER", 1),
    ("MIGRATE.DATABASE", 1),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_wrong_value_is_refused_and_the_key_named(settings: Any, key: str, value: Any) -> None:
    outer, _, inner = key.partition(".")
    raw = {outer: {inner: value}} if inner else {outer: value}
    (found,) = conf.problems(raw)
    assert found.key == key
    assert found.message.startswith("RELIABLE_JOBS" + "".join(f'["{part}"]' for part in key.split(".")))
    assert found.hint
    settings.RELIABLE_JOBS = raw
    with pytest.raises(ImproperlyConfigured, match=outer):
        conf.current()


def test_a_queue_limit_over_the_fleet_is_refused_as_nothing_enforces_it() -> None:
    found = problem(QUEUES={"mail": {"concurrency": 4}})
    assert found.key == "QUEUES"
    assert 'RELIABLE_JOBS["QUEUES"]["mail"]["concurrency"]' in found.message
    assert "is not enforced by this version" in found.message
    assert "jobworker --queues mail:N" in found.message


@pytest.mark.parametrize(
    ("raw", "key", "hint"),
    [
        ({"LEASES": 30}, "LEASES", 'Did you mean "LEASE"?'),
        ({"lease": 30}, "lease", 'Did you mean "LEASE"?'),
        ({"MAX_TRIES": 3}, "MAX_TRIES", "MAX_ATTEMPTS"),
        ({"RETENTION": {"DEATH": 3}}, "RETENTION.DEATH", 'Did you mean "DEAD"?'),
        ({"MIGRATE": {"pooler": True}}, "MIGRATE.pooler", 'Did you mean "POOLER"?'),
        ({"COLOUR": "red"}, "COLOUR", "The keys are: DATABASE, LEASE"),
        ({5: 5}, "5", "The keys are: "),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(raw: Any, key: str, hint: str) -> None:
    (found,) = conf.problems(raw)
    assert found.key == key
    assert "is not a setting" in found.message
    assert hint in found.hint


def test_all_problems_are_given_at_once(settings: Any) -> None:
    settings.RELIABLE_JOBS = raw = {
        "LEASE": 9,
        "HEARTBEAT": 9,
        "POLL": 10,
        "GRACE": -1,
        "RETENTION": {"X": 1, "DONE": -1},
    }
    expected = {"HEARTBEAT", "POLL", "GRACE", "RETENTION.X", "RETENTION.DONE"}
    assert {found.key for found in conf.problems(raw)} == expected
    with pytest.raises(ImproperlyConfigured) as caught:
        conf.current()
    for found in conf.problems(raw):
        assert found.message in str(caught.value)


@pytest.mark.parametrize("raw", [None, [], "LEASE=30", 5])
def test_settings_that_are_no_dict_are_refused(settings: Any, raw: Any) -> None:
    settings.RELIABLE_JOBS = raw
    with pytest.raises(ImproperlyConfigured, match="RELIABLE_JOBS must be a dict"):
        conf.current()


def test_text_that_may_hold_a_password_is_not_repeated() -> None:
    assert "secret" not in problem(OUTBOX={"OPTIONS": "nats://user:secret@host"}).message


@unhurried
@given(
    st.dictionaries(
        st.sampled_from([*conf.Settings.__slots__, "x"]).map(str.upper),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(),
            st.dictionaries(st.text(), st.integers(), max_size=2),
        ),
    )
)
def test_no_settings_make_the_check_itself_fail(raw: dict[str, Any]) -> None:
    for found in conf.problems(raw):
        assert found.message
        assert found.hint
