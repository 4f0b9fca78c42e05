"""What people and code do from outside, to jobs, queues and schedules. The admin and the commands call these too."""

from django_reliable_jobs.control.jobs import (
    Report,
    cancel,
    delete,
    pause_queue,
    resume_queue,
    retry,
    run_now,
    set_priority,
)
from django_reliable_jobs.control.schedules import (
    ScheduleOwnedByCode,
    UnknownSchedule,
    backfill,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    run_schedule,
    save_schedule,
)

__all__ = [
    "Report",
    "ScheduleOwnedByCode",
    "UnknownSchedule",
    "backfill",
    "cancel",
    "delete",
    "delete_schedule",
    "pause_queue",
    "pause_schedule",
    "resume_queue",
    "resume_schedule",
    "retry",
    "run_now",
    "run_schedule",
    "save_schedule",
    "set_priority",
]
