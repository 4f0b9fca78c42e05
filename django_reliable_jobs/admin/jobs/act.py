"""The page that asks before a verb is done to jobs, does it, and says what came of it.

GET shows the question and changes nothing. POST does it: to the jobs whose ids it names, or, in batches, to all that match
a list's filters. Such a POST goes on for about a second, and the page that it answers with posts the rest: by itself where
there is JavaScript, by its button where there is none. Each batch is a transaction of its own.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect, JsonResponse, QueryDict
from django.utils.translation import gettext

from django_reliable_jobs.admin.actions import VERBS, Tally, Verb, perform
from django_reliable_jobs.admin.jobs import all_matching as jobs_walk
from django_reliable_jobs.admin.jobs.all_matching import Cursor, Walk
from django_reliable_jobs.admin.jobs.filters import FILTERS
from django_reliable_jobs.admin.jobs.paths import status_of
from django_reliable_jobs.definitions.validate import check_priority
from django_reliable_jobs.values.batch_size import BatchSize

if TYPE_CHECKING:
    from django_reliable_jobs.admin.jobs.changelist import JobAdmin

TEMPLATE = "job/act.html"
#: Jobs that one request may name.
MOST = 5_000
#: Of these so many are shown.
SHOWN = 100
#: Seconds that one POST works on batches.
TURN = 1.0
#: Jobs of its first batch: a request that is cut before one is done would begin with it again. Seconds that are long for one.
FIRST, LONG = 100, 4.0


def view(admin: JobAdmin, request: HttpRequest) -> HttpResponseBase:
    asked = request.POST if request.method == "POST" else request.GET
    if not asked.get("verb"):
        return _choose(admin, request, asked.get("filters", ""))
    verb = VERBS.get(asked["verb"])
    if verb is None:
        raise Http404(asked["verb"])
    if not admin.allows(request, verb.permission):
        raise PermissionDenied
    value, problem = _priority(verb, asked)
    if "ids" in asked:
        ids = _ids(asked["ids"])
        if request.method == "POST" and problem is None:
            return _do_chosen(admin, request, verb, ids, value)
        return _ask_chosen(admin, request, verb, ids, problem)
    walk = Walk(admin, request, asked.get("filters", ""), verb.statuses)
    if not walk.narrowed:
        return _choose(admin, request, "")
    if request.method == "POST" and problem is None:
        return _do_all(admin, request, verb, walk, asked, value)
    return _ask_all(admin, request, verb, walk, asked, problem)


def _choose(admin: JobAdmin, request: HttpRequest, filters: str) -> HttpResponseBase:
    """Which verb? Only with a filter: nobody means every job there is."""
    if request.method == "POST":
        raise PermissionDenied
    if not (verbs := admin.verbs(request)):
        raise PermissionDenied
    narrowed = Walk(admin, request, filters, ()).narrowed
    status = status_of(QueryDict(filters))
    able = [verb for verb in verbs if status is None or status in verb.statuses]
    return admin.page(
        request, TEMPLATE, gettext("All jobs that match"), verbs=able, filters=filters,
        described=described(filters), back=_list(admin, filters), too_wide=not narrowed,
    )  # fmt: skip


def _ask_chosen(
    admin: JobAdmin, request: HttpRequest, verb: Verb, ids: list[int], problem: str | None
) -> HttpResponseBase:
    came_from = (request.POST if request.method == "POST" else request.GET).get("list", "")
    jobs = admin.get_queryset(request).filter(pk__in=ids).only("name", "status").order_by("-pk")
    rows = [(job, admin.link("change", job.pk), job.status in verb.statuses) for job in jobs[:SHOWN]]
    return admin.page(
        request, TEMPLATE, verb.label, verb=verb, ids=",".join(map(str, ids)), rows=rows, total=len(ids),
        more=len(ids) - len(rows) if len(ids) > SHOWN else 0, problem=problem,
        back=admin.link("change", ids[0]) if len(ids) == 1 else _list(admin, came_from), came_from=came_from,
    )  # fmt: skip


def _do_chosen(
    admin: JobAdmin, request: HttpRequest, verb: Verb, ids: list[int], value: int | None
) -> HttpResponseBase:
    jobs = admin.get_queryset(request)
    names = dict(jobs.filter(pk__in=ids).values_list("pk", "name"))
    report = perform(admin, request, verb, jobs.db, {job_id: names.get(job_id, "?") for job_id in ids}, value)
    tally = Tally()
    tally.add(report)
    level = messages.SUCCESS if not report.skipped else messages.WARNING
    admin.message_user(request, tally.text(verb), level)
    stays = len(ids) == 1 and ids[0] in names and not (verb.name == "delete" and report.changed)
    return HttpResponseRedirect(admin.link("change", ids[0]) if stays else _list(admin, request.POST.get("list", "")))


def _ask_all(
    admin: JobAdmin, request: HttpRequest, verb: Verb, walk: Walk, asked: QueryDict, problem: str | None
) -> HttpResponseBase:
    total, complete = walk.count()
    filters = asked.get("filters", "")
    return admin.page(
        request, TEMPLATE, verb.label, verb=verb, filters=filters, described=described(filters), total=total,
        incomplete=not complete, problem=problem, back=_list(admin, filters), place=Cursor().write(),
        priority=asked.get("priority", ""),
    )  # fmt: skip


def _do_all(
    admin: JobAdmin, request: HttpRequest, verb: Verb, walk: Walk, asked: QueryDict, value: int | None
) -> HttpResponseBase:
    tally, begin, total = _resume(asked)
    place: Cursor | None = None
    # A new priority may move a job to where the walk still comes.
    exclude = Q(priority=value) if verb.asks_priority else None
    alias, until = walk.jobs.db, time.monotonic() + TURN
    stopped = bool(asked.get("stop"))
    size = BatchSize(jobs_walk.BATCH, LONG, FIRST)
    for names, behind in () if stopped else walk.batches(begin, size, exclude):
        place = behind
        if names:
            with size.of_one():
                tally.add(perform(admin, request, verb, alias, names, value))
        if time.monotonic() > until:
            break
    text = tally.text(verb)
    state = json.dumps([tally.changed, tally.skipped, tally.reasons])
    if request.headers.get("Accept") == "application/json":
        done = tally.changed + tally.skipped
        return JsonResponse({"place": place and place.write(), "tally": state, "text": text, "done": done})
    filters = asked.get("filters", "")
    return admin.page(
        request, TEMPLATE, verb.label, verb=verb, filters=filters, described=described(filters), text=text, state=state,
        total=total, done=tally.changed + tally.skipped, place=place and place.write(), under_way=place is not None,
        stopped=stopped, finished=place is None, priority="" if value is None else value, back=_list(admin, filters),
    )  # fmt: skip


def _resume(asked: QueryDict) -> tuple[Tally, Cursor, int]:
    """What the page that posts has been told; it only counts, so nothing depends on its being true."""
    try:
        changed, skipped, reasons = json.loads(asked.get("tally") or "[0, 0, {}]")
        told = {str(reason)[:300]: int(count) for reason, count in list(reasons.items())[:10]}
        return (
            Tally(int(changed), int(skipped), told),
            Cursor.read(asked.get("place") or Cursor().write()),
            int(asked.get("total") or 0),
        )
    except (ValueError, TypeError, AttributeError):
        raise Http404("tally") from None


def _ids(text: str) -> list[int]:
    ids = [int(part) for part in text.split(",") if part.isascii() and part.isdigit() and int(part) < 2**63]
    if not ids:
        raise Http404(text[:100])
    return sorted(set(ids))[:MOST]


def _priority(verb: Verb, asked: QueryDict) -> tuple[int | None, str | None]:
    """The number, and what is wrong with it. While nothing is asked for yet, nothing is wrong."""
    if not verb.asks_priority:
        return None, None
    try:
        return check_priority(int(asked.get("priority", ""))), None
    except ValueError:
        return None, gettext("A priority is a whole number from -100 to 100.") if "priority" in asked else ""


def _list(admin: JobAdmin, filters: str) -> str:
    return f"{admin.link('changelist')}{'?' if filters else ''}{filters}"


def described(filters: str) -> list[tuple[str, str]]:
    """The filters, for people."""
    titles = {"q": gettext("search")} | {str(choice.parameter_name): str(choice.title) for choice in FILTERS}
    return [(titles.get(name, name), str(value)) for name, value in QueryDict(filters).items() if value]
