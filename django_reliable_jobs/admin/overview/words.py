"""Numbers and spans of time as the overview writes them."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.translation import gettext as _

from django_reliable_jobs.operations.overview.queues import Count


def number(value: float) -> str:
    return str(number_format(round(value), use_l10n=True, force_grouping=True))


def count(found: Count) -> str:
    """A plus sign says that there are at least so many."""
    return f"{number(found.value)}+" if found.capped else number(found.value)


def moment(when: datetime) -> str:
    """A time to the second, in the current zone."""
    return date_format(timezone.localtime(when) if settings.USE_TZ else when, "Y-m-d H:i:s")


def short_moment(when: datetime) -> str:
    """The time alone if it is today's, the date and the minute otherwise."""
    text, today = moment(when), moment(timezone.now())[:10]
    return text[11:] if text.startswith(today) else text[:16]


def percent(rate: float) -> str:
    """Nothing that happened is rounded away."""
    shown = rate * 100
    if not shown:
        return "0 %"
    if shown < 0.1:
        return f"< {number_format(0.1, 1)} %"
    return f"{number_format(shown, 1 if shown < 10 else 0)} %"


def span(seconds: float) -> str:
    """About how long: "42 s", "12 min", "3 h", "2 d"."""
    seconds = max(0.0, seconds)
    if seconds < 120:
        return _("%(count)d s") % {"count": seconds}
    if seconds < 7200:
        return _("%(count)d min") % {"count": seconds / 60}
    if seconds < 172_800:
        return _("%(count)d h") % {"count": seconds / 3600}
    return _("%(count)d d") % {"count": seconds / 86_400}
