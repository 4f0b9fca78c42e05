"""The test kit: a project's tests run its jobs without a worker, through the claim, the handler and the settle of one."""

from django_reliable_jobs.testing.assertions import CapturedJobs, assert_enqueued, assert_not_enqueued, captured_jobs
from django_reliable_jobs.testing.handlers import JobRun
from django_reliable_jobs.testing.run import TooManyJobs, arun_jobs, run_jobs

__all__ = [
    "CapturedJobs",
    "JobRun",
    "TooManyJobs",
    "arun_jobs",
    "assert_enqueued",
    "assert_not_enqueued",
    "captured_jobs",
    "run_jobs",
]
