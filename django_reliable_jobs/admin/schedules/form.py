"""The form of a schedule that people own. It checks everything that `save_schedule` would, each error at its field."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_reliable_jobs import conf, payload
from django_reliable_jobs.admin.schedules.widgets import MomentField
from django_reliable_jobs.definitions import redaction, registry
from django_reliable_jobs.definitions import schedule as schedule_definitions
from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.errors import PayloadError, UnknownJob
from django_reliable_jobs.models import CronSchedule
from django_reliable_jobs.schedules import RULES, FiringRules, Misfire, Overlap, ScheduleError, as_timetable

if TYPE_CHECKING:
    ModelFormBase = forms.ModelForm[CronSchedule]
else:
    ModelFormBase = forms.ModelForm

#: Submits the form for its preview alone.
PREVIEW = "_preview"

MISFIRES = {
    Misfire.LATEST: gettext_lazy("latest: one run for the newest missed time"),
    Misfire.ALL: gettext_lazy("all: a run for each missed time, up to the limit"),
    Misfire.SKIP: gettext_lazy("skip: missed times are not made up for"),
}
OVERLAPS = {
    Overlap.ALLOW: gettext_lazy("allow: enqueue all the same"),
    Overlap.SKIP: gettext_lazy("skip: do nothing"),
    Overlap.QUEUE: gettext_lazy("queue: let one run wait"),
    Overlap.CANCEL_RUNNING: gettext_lazy("cancel_running: cancel what is unfinished"),
}


class ScheduleForm(ModelFormBase):
    """Arguments are JSON as it is stored; hidden values stand as asterisks, which keep what is there."""

    job_name = forms.ChoiceField(label=gettext_lazy("Job"))
    args = forms.CharField(
        label=gettext_lazy("Positional arguments"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField", "spellcheck": "false"}),
        help_text=gettext_lazy('A JSON array, such as [1, "weekly"].'),
    )
    kwargs = forms.CharField(
        label=gettext_lazy("Named arguments"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField", "spellcheck": "false"}),
        help_text=gettext_lazy('A JSON object, such as {"region": "EU"}.'),
    )
    misfire = forms.ChoiceField(
        label=gettext_lazy("Missed fire times"),
        choices=[(kind.value, text) for kind, text in MISFIRES.items()],
        initial=Misfire.LATEST.value,
    )
    overlap = forms.ChoiceField(
        label=gettext_lazy("While an earlier run is unfinished"),
        choices=[(kind.value, text) for kind, text in OVERLAPS.items()],
        initial=Overlap.ALLOW.value,
    )
    starts_at = MomentField(
        label=gettext_lazy("Starts at"), required=False, help_text=gettext_lazy("No fire before it.")
    )
    ends_at = MomentField(label=gettext_lazy("Ends at"), required=False, help_text=gettext_lazy("No fire after it."))
    seen_version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = CronSchedule
        fields = ("name", "job_name", "expression", "timezone", *RULES, "pause_after_failures")
        help_texts = {
            "expression": gettext_lazy(
                "Minute, hour, day of month, month, weekday; or @daily and its like; or @every 5m."
            ),
            "timezone": gettext_lazy("A name of the IANA database, such as Asia/Ho_Chi_Minh."),
            "misfire_grace": gettext_lazy("A fire time is missed once it is this late."),
            "catch_up_window": gettext_lazy("Missed times that are older are skipped."),
            "jitter": gettext_lazy("Each run is delayed by up to this long, and never past the next fire."),
            "pause_after_failures": gettext_lazy("Pause after so many DEAD jobs in a row; empty: never."),
        }

    def __init__(self, *everything: Any, **options: Any) -> None:
        super().__init__(*everything, **options)
        stored = self.instance if self.instance.pk else None
        names = [definition.name for definition in registry.all_definitions()]
        self.stored_job: JobDefinition | None = None
        self.stored: dict[str, Any] = {"args": [], "kwargs": {}}
        if stored is not None:
            with suppress(UnknownJob):
                self.stored_job = registry.find(stored.job_name)
            # Kept aside: the instance takes what is submitted. What is no array or object was written by hand.
            args = stored.args if isinstance(stored.args, list) else []
            kwargs = stored.kwargs if isinstance(stored.kwargs, dict) else {}
            self.stored = {"args": args, "kwargs": kwargs}
            shown = redaction.hide(self.stored_job, args, kwargs)
            self.initial["args"], self.initial["kwargs"] = (
                json.dumps(value, ensure_ascii=False) if value else "" for value in shown
            )
            self.initial["seen_version"] = stored.version
            if stored.job_name not in names and self.stored_job is not None:
                names.append(stored.job_name)  # an alias of the job
        if "job_name" in self.fields:
            self.fields["job_name"].choices = [("", "---------"), *((name, name) for name in sorted(names))]  # type: ignore[attr-defined]

    @property
    def wants_preview(self) -> bool:
        return PREVIEW in self.data

    def is_valid(self) -> bool:
        """Never for a preview: the form is shown again, and nothing is saved."""
        return super().is_valid() and not self.wants_preview

    def clean_args(self) -> list[Any]:
        return self._json("args", list, _("This is no JSON array."))  # type: ignore[no-any-return]

    def clean_kwargs(self) -> dict[str, Any]:
        return self._json("kwargs", dict, _("This is no JSON object."))  # type: ignore[no-any-return]

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if self.instance.pk and data.get("seen_version") != self.instance.version:
            self.add_error(
                None, _("Somebody has changed this schedule meanwhile. Load the page again, and make your change.")
            )
        texts = timetable = rules = None
        if data.get("job_name") and {"args", "kwargs"} <= data.keys() and self._put_back(data):
            field = "kwargs" if data["kwargs"] and not data["args"] else "args"
            texts = self._try(field, lambda: self._encode(data))
        if {"expression", "timezone"} <= data.keys():
            timetable = self._try("expression", lambda: as_timetable(data["expression"], data["timezone"]))
        if data.keys() >= set(RULES):
            rules = self._try("misfire", lambda: FiringRules(**{name: data[name] for name in RULES}))
        if texts and timetable and rules:
            name, job, failures = data.get("name"), registry.find(data["job_name"]), data.get("pause_after_failures")
            whole = (name or self.instance.name, job, timetable, data["timezone"], *texts, rules, failures)
            self._try("overlap", lambda: schedule_definitions.ScheduleDefinition(*whole))
        return data

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """What the job will be called with."""
        return payload.decode(self.cleaned_data["args"]), payload.decode(self.cleaned_data["kwargs"])

    def _encode(self, data: dict[str, Any]) -> tuple[str, str]:
        job = registry.find(data["job_name"])
        args, kwargs = payload.decode(data["args"]), payload.decode(data["kwargs"])
        return schedule_definitions.encode_call(job, tuple(args), kwargs, conf.current().max_payload_bytes)

    def _json(self, field: str, kind: type, problem: str) -> Any:
        text = self.cleaned_data[field].strip()
        if not text:
            return kind()
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(f"{problem} {error}") from error
        if type(value) is not kind:
            raise forms.ValidationError(problem)
        return value

    def _put_back(self, data: dict[str, Any]) -> bool:
        """The stored values in place of their asterisks, if the job is the same; another could show them."""
        same = self.stored_job is not None and registry.find(data["job_name"]) is self.stored_job
        stored: dict[str, Any] = self.stored if same else {"args": [], "kwargs": {}}
        fine = True
        for field, given in (("args", enumerate(data["args"])), ("kwargs", data["kwargs"].items())):
            for place, value in list(given):
                if value != redaction.HIDDEN:
                    continue
                try:
                    data[field][place] = stored[field][place]
                except LookupError:
                    self.add_error(field, _("Here is no hidden value of this job to keep: write the value itself."))
                    fine = False
                    break
        return fine

    def _try(self, field: str, function: Callable[[], Any]) -> Any:
        """The function's value; None after an error, which then stands at its field."""
        try:
            return function()
        except ScheduleError as error:
            self.add_error(error.field if error.field in self.fields else field, str(error))
        except (PayloadError, TypeError, ValueError, OverflowError) as error:
            self.add_error(field, str(error))
        return None
