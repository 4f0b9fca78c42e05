"""Schedules: from an expression to fire times, and the rules of missed and overlapping runs. No database here.

`next_fires` answers when a schedule fires, for the worker, the admin's preview, the checks and catching up alike.
"""

from django_reliable_jobs.schedules.cron import CronExpression
from django_reliable_jobs.schedules.errors import ScheduleError
from django_reliable_jobs.schedules.every import Every
from django_reliable_jobs.schedules.jitter import jitter
from django_reliable_jobs.schedules.misfire import Plan, Stretch, fires, next_fire, plan
from django_reliable_jobs.schedules.overlap import Action, Unfinished, decide, decide_all
from django_reliable_jobs.schedules.parse import as_timetable, next_fires
from django_reliable_jobs.schedules.rules import RULES, FiringRules, Misfire, Overlap, RuleOptions
from django_reliable_jobs.schedules.timetable import Timetable

__all__ = [
    "RULES",
    "Action",
    "CronExpression",
    "Every",
    "FiringRules",
    "Misfire",
    "Overlap",
    "Plan",
    "RuleOptions",
    "ScheduleError",
    "Stretch",
    "Timetable",
    "Unfinished",
    "as_timetable",
    "decide",
    "decide_all",
    "fires",
    "jitter",
    "next_fire",
    "next_fires",
    "plan",
]
