"""The checker must not accept what it is there to find: each invariant is shown histories that break it, and only it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.evidence import AttemptRow, EffectRow, Evidence, JobRow, Refusal, Sample, read_logs
from tests.chaos.history import Event, Expectation, read
from tests.chaos.invariants import COMPLAINTS, INVARIANTS, check
from tests.chaos.report import report
from tests.chaos.timeline import Incident, Timeline

WALL = 1_700_000_000.0  # wall time minus monotonic time in these histories
OWNER, RIVAL = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
OWNER_PID, RIVAL_PID = 10, 20
WORKERS = {OWNER: OWNER_PID, RIVAL: RIVAL_PID}


def event(what: str, mono: float, pid: int = OWNER_PID, **details: Any) -> Event:
    return {"event": what, "pid": pid, "mono": mono, "wall": WALL + mono, **details}


def enqueue(tag: str, state: str | None = "committed", **expect: Any) -> list[Event]:
    expectation = {"final": ["DONE"], "effects": 0, "partial": False, "bound_to": None} | expect
    events = [event("enqueue", 0.0, tags=[tag], kind="quick", expect=expectation)]
    return events + ([event("enqueued", 0.1, tags=[tag], state=state)] if state else [])


def run(
    job: int, token: int, begin: float, end: float | None, how: str = "returned", pid: int = OWNER_PID, attempt: int = 1
) -> list[Event]:
    who = {"job": job, "token": token, "attempt": attempt, "tag": f"t{job}", "kind": "quick"}
    events = [event("start", begin, pid, **who)]
    return events + ([event("end", end, pid, outcome=how, **who)] if end is not None else [])


def row(job: int = 1, token: int = 1, status: str = "DONE", **changes: Any) -> JobRow:
    made = JobRow(
        id=job, name="workload.quick", tag=f"t{job}", status=status, reason="", attempts=1, max_attempts=5, losses=0,
        fencing_token=token, owner=OWNER, locked_until=None, started_at=WALL + 1, finished_at=WALL + 2,
        result={"token": token} if status == "DONE" else None,
    )  # fmt: skip
    return replace(made, **changes)


def lost(job: int = 1, token: int = 1, at: float = 10.0, worker: str = OWNER, attempt: int = 1) -> AttemptRow:
    return AttemptRow(job, token, attempt, "QUEUED", "lost", worker, WALL + 1, WALL + at)


def effect(job: int = 1, token: int = 1, step: int = 0) -> EffectRow:
    return EffectRow(f"t{job}", step, job, token)


def failed(job: int = 1, token: int = 1, attempt: int = 1) -> AttemptRow:
    return AttemptRow(job, token, attempt, "FAILED", "", OWNER, WALL + token, WALL + token + 1)


def good() -> Evidence:
    """One job that went well."""
    return Evidence(3.0, history=enqueue("t1") + run(1, 1, 1, 2), jobs=[row()], workers=WORKERS)


def stalled() -> Evidence:
    """A job whose first owner was stopped for longer than its lease, and came back after the second one had finished."""
    return Evidence(
        3.0,
        history=enqueue("t1")
        + run(1, 1, 1, 12)
        + run(1, 2, 7, 9, pid=RIVAL_PID, attempt=2)
        + enqueue("t2")
        + run(2, 3, 50, 51),
        jobs=[row(token=2, attempts=2, losses=1), row(2, 3)],
        attempts=[lost(at=6.0)],
        refusals=[Refusal(OWNER_PID, 1, 1, "DONE")],
        counted={OWNER_PID: 1, RIVAL_PID: 0},
        workers=WORKERS,
        timeline=Timeline(0.0, [Incident("SIGSTOP", "pod 0", 2, 11, frozenset({OWNER_PID}))]),
    )


def broken(evidence: Evidence) -> set[str]:
    return {violation.invariant for violation in check(evidence)}


@pytest.mark.parametrize("evidence", [good(), stalled()], ids=["plain", "stalled"])
def test_what_went_well_is_accepted(evidence: Evidence) -> None:
    assert check(evidence) == []


def with_job(evidence: Evidence, **changes: Any) -> Evidence:
    return replace(evidence, jobs=[replace(evidence.jobs[0], **changes), *evidence.jobs[1:]])


#: Invariant -> histories that break it and nothing else.
BAD: dict[str, dict[str, Evidence]] = {
    "a committed job is there once": {
        "it is lost": replace(good(), history=enqueue("t1"), jobs=[]),
        "it is lost after an unknown commit": replace(
            good(), history=enqueue("t1", "unknown") + enqueue("t1"), jobs=[]
        ),
        "it is there twice": replace(
            good(), history=good().history + run(2, 2, 1, 2), jobs=[row(), row(2, 2, tag="t1")]
        ),
        "an unknown one is there twice": replace(
            good(), history=enqueue("t1", None) + run(1, 1, 1, 2) + run(2, 2, 1, 2), jobs=[row(), row(2, 2, tag="t1")]
        ),
    },
    "a rollback leaves nothing": {
        "it left a job": replace(good(), history=enqueue("t1", "rolled back") + run(1, 1, 1, 2)),
        "nobody enqueued it": replace(good(), history=run(1, 1, 1, 2)),
        "it ran before the rollback": replace(
            good(), history=good().history + enqueue("t9", "rolled back") + run(9, 9, 1, 2)
        ),
    },
    "a job enqueued in an atomic job shares its fate": {
        "the child is missing": replace(good(), history=good().history + enqueue("t1/c", None, bound_to="t1")),
        "the parent is not done": replace(
            good(),
            history=enqueue("t1", final=["DEAD"])
            + run(1, 1, 1, 2, "raised")
            + enqueue("t2", None, bound_to="t1")
            + run(2, 2, 1, 2),
            jobs=[row(status="DEAD"), row(2, 2)],
        ),
    },
    "every job ends as expected": {
        "still queued": with_job(good(), status="QUEUED"),
        "dead": with_job(good(), status="DEAD"),
        "done instead of dead": replace(good(), history=enqueue("t1", final=["DEAD"]) + run(1, 1, 1, 2)),
    },
    "done is what the last owner returned": {
        "the stale owner's outcome was recorded": replace(
            with_job(stalled(), fencing_token=1, result={"token": 1}),
            refusals=[],
            counted={},
            timeline=Timeline(0.0, stalled().timeline.incidents, {OWNER_PID: 12.5}),
        ),
        "the stale owner's result was recorded": with_job(stalled(), result={"token": 1}),
        "the handler raised": replace(good(), history=enqueue("t1") + run(1, 1, 1, 2, "raised")),
        "the handler never ended": replace(good(), history=enqueue("t1") + run(1, 1, 1, None)),
        "no handler ran": replace(good(), history=enqueue("t1")),
    },
    "nothing runs without a living owner": {
        "seen while the fleet was at work": replace(good(), samples=[Sample(1.0, 1, 1, OWNER, False, 0.5)]),
        "finished with a lease": with_job(good(), locked_until=WALL),
    },
    "a claim starts at most once": {
        "in two processes": replace(stalled(), history=stalled().history + run(1, 1, 9.5, 10, pid=RIVAL_PID)),
        "a token for two jobs": replace(
            good(), history=good().history + enqueue("t2") + run(2, 1, 1, 2), jobs=[row(), row(2, 1)]
        ),
    },
    "tokens rise": {
        "a claim got an older token": replace(
            good(),
            history=enqueue("t1") + run(1, 7, 1, 2, "raised") + run(1, 5, 3, 4, "raised") + run(1, 8, 5, 6),
            jobs=[row(token=8, attempts=3)],
            attempts=[failed(token=7), failed(token=5)],
        ),
        "the tables say so": replace(
            good(),
            history=enqueue("t1") + run(1, 8, 5, 6),
            jobs=[row(token=8)],
            attempts=[replace(failed(token=7), started_at=WALL + 1), replace(failed(token=5), started_at=WALL + 3)],
        ),
    },
    "two runs overlap only after a lost lease": {
        "two owners": replace(
            good(),
            history=enqueue("t1") + run(1, 1, 1, 3, "raised") + run(1, 2, 2, 4, pid=RIVAL_PID),
            jobs=[row(token=2)],
            attempts=[failed()],
        ),
        "the first never ended": replace(
            good(), history=enqueue("t1") + run(1, 1, 1, None) + run(1, 2, 2, 4, pid=RIVAL_PID), jobs=[row(token=2)]
        ),
    },
    "stale outcomes are refused and counted": {
        "nobody refused it": replace(stalled(), refusals=[], counted={}),
        "refused twice": replace(stalled(), refusals=stalled().refusals * 2, counted={OWNER_PID: 2}),
        "refused and recorded": replace(good(), refusals=[Refusal(OWNER_PID, 1, 1, "DONE")]),
        "not counted": replace(stalled(), counted={OWNER_PID: 0}),
    },
    "attempts are bounded": {
        "more than allowed": with_job(good(), attempts=6),
        "more on record than allowed": replace(
            with_job(good(), max_attempts=1, attempts=1), attempts=[replace(failed(), token=0)]
        ),
        "more starts than allowed": replace(
            with_job(stalled(), max_attempts=2, attempts=2),
            history=stalled().history + run(1, 0, 0.2, 0.3, "stopped"),
            crashes_only=True,
        ),
        "a loss was not counted": with_job(stalled(), losses=0),
        "done without an attempt": with_job(good(), attempts=0),
    },
    "an attempt is recorded once": {
        "twice": replace(with_job(stalled(), losses=2), attempts=[lost(at=6.0), lost(at=6.0)]),
    },
    "a lease is lost only to a fault": {
        "nothing happened": replace(stalled(), timeline=Timeline(0.0)),
        "it happened to somebody else": replace(
            stalled(), timeline=Timeline(0.0, [Incident("SIGSTOP", "pod 1", 2, 11, frozenset({RIVAL_PID}))])
        ),
        "it happened long before": replace(
            stalled(), timeline=Timeline(0.0, [Incident("outage", "all", -90, -80)])
        ),
    },
    "effects happen once": {
        "twice": replace(good(), history=enqueue("t1", effects=2) + run(1, 1, 1, 2), effects=[effect(), effect()]),
        "not at all": replace(good(), history=enqueue("t1", effects=1) + run(1, 1, 1, 2)),
        "a step is missing": replace(
            good(), history=enqueue("t1", effects=2, partial=True) + run(1, 1, 1, 2), effects=[effect()]
        ),
        "of a run that was lost": replace(
            stalled(),
            history=enqueue("t1", effects=1) + stalled().history[2:],
            effects=[effect(token=1)],
        ),
        "of a job that is dead": replace(
            good(),
            history=enqueue("t1", effects=1, final=["DEAD"]) + run(1, 1, 1, 2, "raised"),
            jobs=[row(status="DEAD")],
            effects=[effect()],
        ),
        "of a job that was rolled back": replace(
            good(), history=good().history + enqueue("t9", "rolled back"), effects=[effect(9)]
        ),
    },
    "workers stay sound": {
        "a traceback": replace(good(), logs=["pod-0.0.log: Traceback (most recent call last):"]),
        "a deadlock": replace(good(), logs=["pod-0.0.log: [1] WARNING database error, 1 in a row: deadlock detected"]),
    },
}  # fmt: skip


def test_every_invariant_has_a_history_that_breaks_it() -> None:
    assert BAD.keys() == INVARIANTS.keys()


@pytest.mark.parametrize(
    ("name", "evidence"),
    [pytest.param(name, bad, id=f"{name}: {how}") for name, cases in BAD.items() for how, bad in cases.items()],
)
def test_a_bad_history_breaks_its_invariant_and_no_other(name: str, evidence: Evidence) -> None:
    assert broken(evidence) == {name}


def test_a_job_left_running_is_found_at_the_end() -> None:
    found = broken(with_job(good(), status="RUNNING", locked_until=WALL + 9))
    assert found == {"nothing runs without a living owner", "every job ends as expected"}


# --- what excuses what ----------------------------------------------------------------------------


def test_a_process_that_died_after_its_handler_came_back_need_not_have_refused_anything() -> None:
    evidence = replace(stalled(), refusals=[], counted={})
    evidence.timeline.deaths[OWNER_PID] = 12.5
    assert broken(evidence) == set()


def test_a_dead_process_runs_nothing_any_more() -> None:
    evidence = replace(
        good(),
        history=enqueue("t1") + run(1, 1, 1, None) + run(1, 2, 2.5, 4, pid=RIVAL_PID, attempt=2),
        jobs=[row(token=2, attempts=2)],
        timeline=Timeline(0.0, deaths={OWNER_PID: 2.0}),
    )
    assert broken(evidence) == set()


def test_a_commit_whose_answer_was_lost_may_have_been_either() -> None:
    assert broken(replace(good(), history=enqueue("t1", "unknown") + run(1, 1, 1, 2))) == set()
    assert broken(replace(good(), history=enqueue("t1", "unknown"), jobs=[])) == set()
    assert broken(replace(good(), history=enqueue("t1", None), jobs=[])) == set()


def test_a_stopped_process_may_start_late_what_was_taken_from_it() -> None:
    evidence = stalled()
    events = [e for e in evidence.history if (e.get("job"), e.get("token")) != (1, 1)]
    assert broken(replace(evidence, history=events + run(1, 1, 10, 12))) == set()


# --- reading --------------------------------------------------------------------------------------


def test_a_history_is_read_in_the_order_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert list(read(path)) == []
    path.write_text("".join(json.dumps({"event": "start", "job": job}) + "\n" for job in (2, 1)))
    assert [one["job"] for one in read(path)] == [2, 1]


def test_a_stop_that_c_code_drops_is_no_complaint_and_any_other_traceback_is() -> None:
    stop = "Traceback (most recent call last):\n  File x\n\ndjango_reliable_jobs.errors.LeaseLost"
    ignored = f"{stop}\nException ignored in: 'psycopg_binary.pq.notice_receiver'\n{stop}: "
    other = "Traceback (most recent call last):\n  File x\nValueError: no"

    def complaints(log: str) -> int:
        lines = [f"pod-0.0.log: {line}" for line in log.split("\n")]
        return sum(found.invariant == COMPLAINTS for found in check(replace(good(), logs=lines)))

    assert complaints(f"a\n{ignored}\nb") == 0
    elsewhere = "2026-01-01 00:00:01,000 [10] WARNING django_reliable_jobs.worker: workload.slow #7 failed"
    for at in range(ignored.count("\n")):
        lines = ignored.split("\n")
        for record in (elsewhere, f"{elsewhere}: the connection is bad\n\tThis probably means the server has ended"):
            assert complaints("\n".join([*lines[: at + 1], record, *lines[at + 1 :]])) == 0, "another thread logs too"
    trouble = "2026-01-01 00:00:01,000 [10] WARNING django_reliable_jobs.worker: a heartbeat failed"
    assert complaints(f"{ignored}\n{trouble}\n{other}") == 2
    assert complaints(f"{elsewhere}\n{other}\n{trouble}") == 1, (
        "the traceback of a failed attempt belongs to its record"
    )
    failed = f"{elsewhere}: connection failed: No such file\n\tIs the server running on that socket?"
    assert complaints(f"{failed}\n{other}") == 0, "the message of the failed attempt has two lines"
    assert complaints(f"{elsewhere}\n\ta deadlock") == 1, "what a further line says counts"
    assert complaints(f"a\n{stop}\nb") == 1
    assert complaints(f"{ignored}\nb\n{other}") == 1
    assert complaints(ignored.replace("LeaseLost: ", "StaleToken: ")) > 0


def test_long_stacks_are_read_in_no_time() -> None:
    """A pattern that can read each line in two ways would need 2^n steps for n lines."""
    frames = "\n".join(f'  File "x.py", line {n}, in call' for n in range(200))
    lines = [f"pod-0.0.log: {line}" for line in f"Traceback (most recent call last):\n{frames}".split("\n")]
    assert sum(found.invariant == COMPLAINTS for found in check(replace(good(), logs=lines))) == 1


def test_the_logs_name_workers_and_refused_outcomes(tmp_path: Path) -> None:
    (tmp_path / "pod-0.0.log").write_text(
        f"2026-01-01 00:00:00,000 [10] INFO django_reliable_jobs.worker: worker {OWNER}: host:10, 8 slots, all queues\n"
        "2026-01-01 00:00:01,000 [10] WARNING django_reliable_jobs.worker: workload.slow #7: this worker lost its lease"
        " (token 70), so its outcome DONE is dropped\n"
        f"2026-01-01 00:00:02,000 [10] INFO django_reliable_jobs.worker: worker {OWNER} ends: 3 done, 1 refused\n"
        f"2026-01-01 00:00:02,000 [20] INFO django_reliable_jobs.worker: worker {RIVAL} ends: 3 done\n"
    )
    evidence = Evidence(3.0)
    read_logs(tmp_path, evidence)
    assert evidence.refusals == [Refusal(10, 7, 70, "DONE")]
    assert evidence.workers == {OWNER: 10}
    assert evidence.counted == {10: 1, 20: 0}


def test_the_report_shows_seed_faults_and_the_history_of_the_job(tmp_path: Path) -> None:
    evidence = replace(stalled(), refusals=[], counted={})
    text = report(4711, evidence.timeline, check(evidence), evidence, tmp_path)
    parts = [
        "CHAOS_SEED=4711",
        "SIGSTOP: pod 0",
        "--- job 1",
        "token 2 starts",
        "token 1 ends: returned",
        str(tmp_path),
    ]
    assert [part for part in parts if part not in text] == []


def test_expectations_survive_the_history() -> None:
    written = json.loads(json.dumps(enqueue("t1", effects=2, partial=True)[0]))["expect"]
    assert Expectation(**written | {"final": tuple(written["final"])}) == Expectation(effects=2, partial=True)
