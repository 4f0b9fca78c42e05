"""The checker: what must hold whatever happened. It knows the contract and nothing of the implementation.

A new invariant is a generator of violations, registered with `@invariant`, and an entry in `test_checker.py` that shows
it a history it must not accept.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.chaos.evidence import Evidence
from tests.chaos.story import Key, Story

#: Seconds within which a living worker has offered an outcome, an outage included.
OFFERED_WITHIN = 15.0


@dataclass(frozen=True)
class Violation:
    """`jobs` and `tags` are those whose histories a reader will want to see."""

    invariant: str
    message: str
    jobs: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()


Found = Iterator[tuple[str, list[int], list[str]]]
INVARIANTS: dict[str, Callable[[Story], Found]] = {}


def invariant(function: Callable[[Story], Found]) -> Callable[[Story], Found]:
    INVARIANTS[function.__name__.replace("_", " ")] = function
    return function


def check(evidence: Evidence) -> list[Violation]:
    """All violations, in the order of the invariants."""
    story = Story(evidence)
    return [
        Violation(name, message, tuple(jobs), tuple(tags))
        for name, function in INVARIANTS.items()
        for message, jobs, tags in function(story)
    ]


#: For runs that end with jobs left to do, or that make workers complain.
UNFINISHED = "every job ends as expected"
COMPLAINTS = "workers stay sound"

# --- enqueue --------------------------------------------------------------------------------------


@invariant
def a_committed_job_is_there_once(story: Story) -> Found:
    for tag, enqueued in story.enqueued.items():
        rows = story.rows_of(tag)
        if len(rows) > 1:
            yield f"{tag} has {len(rows)} rows", [row.id for row in rows], [tag]
        elif enqueued.state == "committed" and not rows:
            yield f"{tag} was committed and is lost", [], [tag]


@invariant
def a_rollback_leaves_nothing(story: Story) -> Found:
    for tag, enqueued in story.enqueued.items():
        if enqueued.state == "rolled back" and story.rows_of(tag):
            yield f"{tag} was rolled back and has a row", story.jobs_of([tag]), [tag]
    for row in story.jobs.values():
        if row.tag is not None and row.tag not in story.enqueued:
            yield f"nobody has enqueued {row.tag}", [row.id], [row.tag]
    for key, events in story.starts.items():
        if key.job not in story.jobs:
            yield f"a handler ran for job {key.job}, which is not there", [key.job], [events[0]["tag"]]


@invariant
def a_job_enqueued_in_an_atomic_job_shares_its_fate(story: Story) -> Found:
    for tag, enqueued in story.enqueued.items():
        if (parent := enqueued.expect.bound_to) is not None:
            done = [row for row in story.rows_of(parent) if row.status == "DONE"]
            if len(done) != len(story.rows_of(tag)):
                what = f"{len(story.rows_of(tag))} rows of {tag}, {len(done)} DONE rows of {parent}"
                yield what, story.jobs_of([tag, parent]), [tag, parent]


# --- the end --------------------------------------------------------------------------------------


@invariant
def every_job_ends_as_expected(story: Story) -> Found:
    for row in story.jobs.values():
        enqueued = story.enqueued.get(row.tag or "")
        if enqueued is not None and row.status not in enqueued.expect.final:
            expected = " or ".join(enqueued.expect.final)
            yield f"{row.tag} ({row.name}) is {row.status} ({row.reason}), expected {expected}", [row.id], []


@invariant
def done_is_what_the_last_owner_returned(story: Story) -> Found:
    for row in story.jobs.values():
        key = Key(row.id, row.fencing_token)
        if row.status in ("DONE", "DEAD") and (newer := [t for t in story.tokens[row.id] if t > row.fencing_token]):
            yield f"recorded under token {row.fencing_token}, but {newer} have run since", [row.id], []
        if row.status != "DONE":
            continue
        if not any(event["outcome"] == "returned" for event in story.ends[key]):
            yield f"DONE under token {row.fencing_token}, whose handler never returned", [row.id], []
        if isinstance(row.result, dict) and row.result.get("token", row.fencing_token) != row.fencing_token:
            yield f"DONE under token {row.fencing_token} with the result of {row.result['token']}", [row.id], []


@invariant
def nothing_runs_without_a_living_owner(story: Story) -> Found:
    for row in story.jobs.values():
        if row.status == "RUNNING":
            yield f"still RUNNING at the end, owner {row.owner}", [row.id], []
        elif row.locked_until is not None:
            yield f"{row.status} with a lease", [row.id], []
    seen = Counter((s.job, s.token, s.owner, s.overdue) for s in story.evidence.samples if not s.owner_alive)
    for (job, token, owner, overdue), _ in seen.items():
        yield f"RUNNING under token {token} of the dead worker {owner}, lease overdue by {overdue:.2f} s", [job], []


# --- runs -----------------------------------------------------------------------------------------


@invariant
def a_claim_starts_at_most_once(story: Story) -> Found:
    owners = defaultdict(set)
    for key, events in story.starts.items():
        owners[key.token].add(key.job)
        if len(events) > 1:
            yield f"token {key.token} started {len(events)} times", [key.job], []
    for token, jobs in owners.items():
        if len(jobs) > 1:
            yield f"token {token} was given for {len(jobs)} jobs", sorted(jobs), []


@invariant
def tokens_rise(story: Story) -> Found:
    """A handler may start after a newer one only if its lease was lost before it began (a stopped process)."""
    for job, tokens in story.tokens.items():
        for earlier, later in itertools.pairwise(tokens):
            if later < earlier and not story.is_lost(Key(job, later)):
                yield f"token {later} started after {earlier}", [job], []
    by_job = defaultdict(list)
    for attempt in story.evidence.attempts:
        if attempt.started_at is not None:
            by_job[attempt.job].append((attempt.started_at, attempt.token))
    for job, claims in by_job.items():
        tokens = [token for _, token in sorted(claims)]
        if tokens != sorted(tokens):
            yield f"claims in the order of time have the tokens {tokens}", [job], []


@invariant
def two_runs_overlap_only_after_a_lost_lease(story: Story) -> Found:
    for job, tokens in story.tokens.items():
        keys = {Key(job, token) for token in tokens}
        runs = [(story.starts[key][0]["mono"], story.over_at(key), key) for key in keys]
        for (began, over, one), (next_began, next_over, other) in itertools.combinations(sorted(runs), 2):
            overlap = min(over, next_over) - max(began, next_began)
            older = min(one, other)
            if overlap > 0 and not story.is_lost(older) and not story.was_cut(older):
                what = f"tokens {one.token} and {other.token} ran together for {overlap:.3f} s"
                yield f"{what}, and the lease of {older.token} was not lost", [job], []


@invariant
def stale_outcomes_are_refused_and_counted(story: Story) -> Found:
    deaths = story.evidence.timeline.deaths
    lines: Counter[int] = Counter()
    for key, refusals in story.refusals.items():
        lines.update(refusal.pid for refusal in refusals)
        row = story.jobs.get(key.job)
        if len(refusals) > 1:
            yield f"the outcome under token {key.token} was refused {len(refusals)} times", [key.job], []
        if row is not None and row.status == "DONE" and row.fencing_token == key.token:
            yield f"the outcome under token {key.token} was refused and recorded", [key.job], []
    for key, ends in story.ends.items():
        lost = [attempt.worker or "" for attempt in story.attempts[key] if attempt.reason == "lost"]
        if not lost or not ends or story.refusals[key]:
            continue
        lived_until = min(deaths.get(story.evidence.workers.get(worker, 0), math.inf) for worker in lost)
        # One whose supervisor was killed stops, and does not wait for a database that is away just then.
        orphaned = story.evidence.timeline.orphaned
        lived_until = min(
            lived_until, *(orphaned.get(story.evidence.workers.get(worker, 0), math.inf) for worker in lost)
        )
        if lived_until - ends[0]["mono"] > OFFERED_WITHIN + 2 * story.evidence.lease:
            yield f"the lease of token {key.token} was lost, and nobody refused its outcome", [key.job], []
    for pid, counted in story.evidence.counted.items():
        if lines[pid] != counted:
            yield f"process {pid} counted {counted} refused outcomes and told of {lines[pid]}", [], []


@invariant
def attempts_are_bounded(story: Story) -> Found:
    used: Counter[int] = Counter(attempt.job for attempt in story.evidence.attempts)
    lost: Counter[int] = Counter(attempt.job for attempt in story.evidence.attempts if attempt.reason == "lost")
    for row in story.jobs.values():
        if row.losses != lost[row.id]:
            yield f"losses is {row.losses}, and {lost[row.id]} attempts are recorded as lost", [row.id], []
        if row.status == "DONE" and row.attempts < 1:
            yield f"DONE after {row.attempts} attempts", [row.id], []
        if row.max_attempts is None:
            continue
        spent = max(row.attempts, used[row.id] + (row.status == "DONE"))
        if spent > row.max_attempts:
            yield f"{spent} attempts of {row.max_attempts}", [row.id], []
        ends = [event for token in story.tokens[row.id] for event in story.ends[Key(row.id, token)]]
        starts = len(story.tokens[row.id]) - sum(event["outcome"] == "snoozed" for event in ends)
        if story.evidence.crashes_only and starts > row.max_attempts:
            yield f"{starts} starts with {row.max_attempts} attempts", [row.id], []


@invariant
def an_attempt_is_recorded_once(story: Story) -> Found:
    for key, attempts in story.attempts.items():
        if len(attempts) > 1:
            yield f"token {key.token} has {len(attempts)} attempts", [key.job], []


@invariant
def a_lease_is_lost_only_to_a_fault(story: Story) -> Found:
    """Nobody takes a job from a worker that was never disturbed."""
    timeline = story.evidence.timeline
    window = 3 * story.evidence.lease + 5
    for attempt in story.evidence.attempts:
        if attempt.reason != "lost":
            continue
        when = attempt.finished_at - story.offset
        pid = story.evidence.workers.get(attempt.worker or "")
        died = pid is not None and timeline.deaths.get(pid, math.inf) <= when
        if not died and not any(one.touches(pid, when - window, when) for one in timeline.incidents):
            yield f"token {attempt.token} was lost for no reason, its worker was process {pid}", [attempt.job], []


# --- effects --------------------------------------------------------------------------------------


@invariant
def effects_happen_once(story: Story) -> Found:
    for tag, effects in story.effects.items():
        twice = [step for step, count in Counter(effect.step for effect in effects).items() if count > 1]
        if twice:
            yield f"the effects of {tag} at {twice} happened more than once", [effects[0].job], [tag]
    for tag, enqueued in story.enqueued.items():
        rows, effects = story.rows_of(tag), story.effects.get(tag, [])
        done = any(row.status == "DONE" for row in rows)
        if not rows or not (done or enqueued.expect.partial):
            if effects:
                yield f"{tag} is not DONE and has {len(effects)} effects", story.jobs_of([tag]), [tag]
        elif done and len(effects) != enqueued.expect.effects:
            yield f"{tag} has {len(effects)} effects, expected {enqueued.expect.effects}", story.jobs_of([tag]), [tag]
        if done and not enqueued.expect.partial:
            row = rows[0]
            if stale := [effect.token for effect in effects if effect.token != row.fencing_token]:
                yield f"the effect of {tag} bears token {stale}, its row {row.fencing_token}", [row.id], [tag]


# --- logs -----------------------------------------------------------------------------------------

BROKEN = re.compile(
    r"the engine failed|a heartbeat failed|maintenance failed|internal error while|the worker failed|cannot be stored|deadlock"
    r"|a callback after its commit failed|Traceback \(most recent call last\)|another command is already in progress"
    r"|workers do not stop|DatabaseWrapper objects created in a thread"
)
#: What a worker may say in a loop while a fault lasts.
REFUSED = re.compile(r"it is tried again: (?:permission denied for|cannot execute .* in a read-only transaction)")
#: A line of its own of a worker's log; those of other threads can come in the middle of what C code prints.
LOGGED = re.compile(r"\S+\.log: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
#: The stacks of a process that ends because a part of it stands still: as long as there are threads, and no error of their own.
DUMPED = re.compile(r'\S+\.log:(?:   File ".*", line \d+ in | (?:Current thread|Thread) 0x| Extension modules: |$)')
#: What was raised to stop a handler hit a callback of C code, which can only drop it; the slot is given up later.
DROPPED = re.compile(
    r"(?m)^(?:@Traceback .*\n(?:@(?:  .*)?\n)*@errors.*\n)?@Exception ignored in: .*\n@Traceback .*\n(?:@(?:  .*)?\n)*@errors.*"
    .replace("@errors", r"@django_reliable_jobs\.errors\.(?:LeaseLost|DeadlineExceeded|JobCancelled)")
    .replace("@", r"\S+\.log: ?+")  # possessive: two ways to read each line would be 2^n to read n of them
)  # fmt: skip


#: A record about a job, and how the traceback of its handler's exception begins, which belongs to it.
OF_A_JOB = re.compile(r" #\d+\b")
#: The rest of a message of PostgreSQL or libpq, which has several lines.
CONTINUED = re.compile(r"\S+\.log: \t")
BEGINS = re.compile(r"\S+\.log: (?:Traceback \(|django_reliable_jobs\.errors\.HandlerError)")


def own_words(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the tracebacks that belong to failed attempts, and without dumped stacks."""
    of_a_job = inside = dropped = False
    for line in lines:
        if LOGGED.match(line):
            of_a_job, inside = OF_A_JOB.search(line) is not None, False
            yield line
            continue
        if BEGINS.match(line):
            inside, dropped = inside or (of_a_job and not dropped), False
        of_a_job = of_a_job and CONTINUED.match(line) is not None
        if "Exception ignored in: " in line:  # its traceback comes next, perhaps behind another thread's line
            inside, dropped = False, True
        if not inside and not DUMPED.match(line):
            yield line


def is_logged(line: str) -> bool:
    """A record of a worker's log, or a further line of the message in one."""
    return LOGGED.match(line) is not None or CONTINUED.match(line) is not None


@invariant
def workers_stay_sound(story: Story) -> Found:
    own = list(own_words(story.evidence.logs))
    # Those of other threads can come in the middle of what C code prints.
    logged = [line for line in own if is_logged(line)]
    printed = DROPPED.sub("", "\n".join(line for line in own if not is_logged(line))).splitlines()
    seen: Counter[str] = Counter()
    for line in logged + printed:
        if (found := BROKEN.search(line)) and not REFUSED.search(line):
            seen[found[0]] += 1
            if seen[found[0]] <= 3:
                yield f"in a worker's log: {line[:500]}", [], []
