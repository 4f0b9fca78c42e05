"""How values look on a page: always escaped by the template, cut, and quick whatever they hold."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import Case, F, Func, IntegerField, TextField, Value, When
from django.db.models.functions import Cast, Left
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.fields import PayloadField
from django_reliable_jobs.values import states
from django_reliable_jobs.values.states import JobStatus

#: Characters of one value on a page.
CUT = 20_000
#: Stored bytes up to which a JSON value is read whole. Beyond, only the beginning of its text leaves the database.
WHOLE = 1_500_000

#: As they are stored -> as people read them.
REASONS = {
    states.REASON_LOST: _("lost"),
    states.REASON_EXPIRED: _("expired"),
    states.REASON_UNKNOWN_JOB: _("unknown job"),
    states.REASON_PERMANENT: _("permanent failure"),
    states.REASON_ATTEMPTS: _("attempts used up"),
    states.REASON_REQUESTED: _("cancel requested"),
    states.REASON_DEADLINE: _("deadline exceeded"),
    states.REASON_BAD_ARGUMENTS: _("bad arguments"),
    states.REASON_RESULT: _("result not stored"),
    states.REASON_NOT_STORED: _("outcome not stored"),
}


def reason(stored: str) -> str:
    return str(REASONS.get(stored, stored))


def badge(status: str, label: str | None = None) -> SafeString:
    """The status as a coloured word; the colour is the stylesheet's."""
    text = label if label is not None else dict(JobStatus.choices).get(status, status)
    return format_html('<span class="job-badge job-badge-{}">{}</span>', status.lower(), text)


def cut(text: str, limit: int = CUT, *, length: int | None = None) -> str:
    """At most `limit` characters; what is left out is counted. `length` is that of the whole, if `text` is a part."""
    whole = len(text) if length is None else length
    if whole <= limit:
        return text
    return gettext("%(text)s… [cut, %(count)s characters in all]") % {"text": text[:limit], "count": f"{whole:,}"}


def pretty(value: Any) -> str:
    """A decoded payload as indented JSON, cut; what JSON has no form for is shown as its text."""
    try:
        return cut(json.dumps(value, indent=2, ensure_ascii=False, default=str))
    except (ValueError, RecursionError):  # raw SQL has written a nesting, or a number, that has no end
        return gettext("cannot be shown: it is nested too deeply, or too large")


def sized(field: str) -> dict[str, Any]:
    """Annotations that read a JSON column in bounds: `<field>_whole` if it is small enough, or else `<field>_part`."""
    size = Func(F(field), function="pg_column_size", output_field=IntegerField())
    small = When(**{f"{field}_size__lte": WHOLE, "then": F(field)})
    return {
        f"{field}_size": size,
        f"{field}_whole": Case(small, default=Value(None), output_field=PayloadField()),
        f"{field}_part": Case(
            When(**{f"{field}_size__gt": WHOLE, "then": Left(Cast(F(field), TextField()), CUT)}),
            default=Value(None),
            output_field=TextField(),
        ),
    }
