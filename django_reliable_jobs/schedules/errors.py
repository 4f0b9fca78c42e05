"""What is said about a schedule that cannot be."""

from __future__ import annotations

from django_reliable_jobs.errors import ReliableJobsError


class ScheduleError(ReliableJobsError, ValueError):
    """A schedule cannot be computed: its expression, time zone, period or rules are wrong.

    The message can be shown to whoever wrote the schedule. `.field` says where the mistake is: a field of the
    expression (`minute`, `hour`, `day-of-month`, `month`, `day-of-week`), `expression`, `timezone`, or the name of a
    rule (`misfire_grace`, …).
    """

    def __init__(self, message: str, field: str = "expression") -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[type[ScheduleError], tuple[str, str]]:
        return type(self), (str(self), self.field)
