"""Moments in forms: aware with and without `USE_TZ`, and with names that a screen reader can say."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.admin.widgets import AdminSplitDateTime
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _


class MomentField(forms.SplitDateTimeField):
    """A moment in the current time zone; `label` is needed."""

    def __init__(self, **options: Any) -> None:
        widget = AdminSplitDateTime()
        for part, name in zip(widget.widgets, (_("date"), _("time")), strict=True):
            part.attrs["aria-label"] = format_lazy("{}: {}", options["label"], name)
        super().__init__(widget=widget, **options)

    def clean(self, value: Any) -> datetime | None:
        return aware(super().clean(value))


def aware(value: datetime | None) -> datetime | None:
    """A moment of a row or a form as schedules want it: without `USE_TZ` it is one of `TIME_ZONE`."""
    if value is None or timezone.is_aware(value):
        return value
    return timezone.make_aware(value, timezone.get_default_timezone())


def shown(value: datetime) -> datetime:
    """The reverse: what a form shows of an aware moment."""
    return value if settings.USE_TZ else timezone.make_naive(value, timezone.get_default_timezone())
