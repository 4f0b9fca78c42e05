"""What a person gets to read when a run has broken an invariant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.evidence import Evidence
from tests.chaos.invariants import Violation
from tests.chaos.story import Key, Story
from tests.chaos.timeline import Timeline

MOST_VIOLATIONS = 30
MOST_HISTORIES = 5


class ChaosFailure(AssertionError):
    """Its text is the report."""


def report(
    seed: int, timeline: Timeline, violations: Sequence[Violation], evidence: Evidence | None, directory: Path
) -> str:
    parts = [f"chaos: seed {seed}; CHAOS_SEED={seed} makes the same plan; logs and history are in {directory}"]
    parts.append("--- faults\n" + timeline.describe())
    counts = Counter(violation.invariant for violation in violations)
    if violations:
        parts.append("--- broken\n" + "\n".join(f"{n:5d} x {name}" for name, n in counts.most_common()))
        lines = [f"{v.invariant}: {v.message} (jobs {list(v.jobs)})" for v in violations[:MOST_VIOLATIONS]]
        parts.append("\n".join(lines))
    if evidence is not None:
        parts.append("--- state\n" + describe_state(evidence))
        story = Story(evidence)
        shown: set[int | str] = set()
        for violation in pick(violations):
            for job in violation.jobs[:3]:
                if job not in shown:
                    shown.add(job)
                    parts.append(f"--- job {job}\n" + describe_job(story, job))
            for tag in violation.tags[:3]:
                if not story.rows_of(tag) and tag not in shown:
                    shown.add(tag)
                    parts.append(f"--- {tag}\n" + describe_tag(story, tag))
    return "\n\n".join(parts)


def pick(violations: Sequence[Violation]) -> list[Violation]:
    """A few of each invariant, since the first one may be broken a thousand times."""
    seen: Counter[str] = Counter()
    chosen = []
    for violation in violations:
        seen[violation.invariant] += 1
        if seen[violation.invariant] <= MOST_HISTORIES:
            chosen.append(violation)
    return chosen


def describe_state(evidence: Evidence) -> str:
    statuses = Counter(row.status for row in evidence.jobs)
    lost = sum(1 for attempt in evidence.attempts if attempt.reason == "lost")
    starts = sum(1 for event in evidence.history if event["event"] == "start")
    jobs = ", ".join(f"{n} {status}" for status, n in sorted(statuses.items()))
    return f"{jobs or 'no jobs'}; {starts} starts, {lost} lost leases, {len(evidence.refusals)} refused outcomes"


def describe_job(story: Story, job: int) -> str:
    """Everything that is known of a job, in the order of time."""
    row = story.jobs.get(job)
    lines = [f"row: {row}"]
    moments: list[tuple[float, str]] = []
    for token in sorted(set(story.tokens[job])):
        key = Key(job, token)
        for event in story.starts[key]:
            moments.append((event["mono"], f"token {token} starts, attempt {event['attempt']}, process {event['pid']}"))
        for event in story.ends[key]:
            moments.append((event["mono"], f"token {token} ends: {event['outcome']}, process {event['pid']}"))
        if not story.ends.get(key):
            moments.append((story.over_at(key), f"token {token} never told its end"))
    for key, attempts in story.attempts.items():
        if key.job == job:
            for a in attempts:
                what = f"token {a.token} recorded as {a.status} ({a.reason}), attempt {a.attempt}, worker {a.worker}"
                moments.append((a.finished_at - story.offset, what))
    if row is not None and row.finished_at is not None:
        moments.append((row.finished_at - story.offset, f"the row is {row.status} ({row.reason})"))
    timeline = story.evidence.timeline
    if moments:
        first, last = min(moments)[0] - 2 * story.evidence.lease, max(m for m, _ in moments if m != float("inf"))
        for one in timeline.incidents:
            if one.touches(None, first, last):
                moments.append((one.begin, f"    ({one.what}: {one.target})"))
    lines += [f"{when - timeline.began:9.3f} s  {what}" for when, what in sorted(moments)]
    lines += [line for line in story.evidence.logs if f"#{job}:" in line or f"#{job} " in line][:20]
    if row is not None and row.tag is not None:
        lines.append(describe_tag(story, row.tag))
    return "\n".join(lines)


def describe_tag(story: Story, tag: str) -> str:
    enqueued = story.enqueued.get(tag)
    effects = story.effects.get(tag, [])
    state = f"{sorted(enqueued.states)}, expected {enqueued.expect}" if enqueued else "unknown to producers"
    return f"tag {tag}: {state}; effects (step, token): {[(e.step, e.token) for e in effects]}"
