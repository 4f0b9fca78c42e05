"""The overview page: what is wrong comes first, everybody sees what they may, and it is a plain page under a strict CSP."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.contrib.admin.sites import AdminSite
from django.test import Client
from django.urls import reverse

from django_reliable_jobs.admin.charts import columns, strip
from django_reliable_jobs.admin.overview import problems as overview_problems
from django_reliable_jobs.admin.overview.words import count, percent, span
from django_reliable_jobs.models import CronRun, CronSchedule, Job, Worker
from django_reliable_jobs.operations.overview.queues import Count
from django_reliable_jobs.operations.overview.schedules import RunFigures
from tests.support.admin.fixtures import Staff, url
from tests.support.factories import JobAttemptFactory, JobFactory, QueueStateFactory, WorkerFactory, ago
from tests.support.schedules.tools import schedule

pytestmark = pytest.mark.django_db

ALL = ("view_queuestate", "view_job", "view_worker", "view_cronschedule", "view_cronrun")


def page(client: Client, part: bool = False) -> str:
    answer = client.get(reverse(f"admin:django_reliable_jobs_overview{'_part' if part else ''}"))
    assert answer.status_code == 200
    return str(answer.content.decode())


def problems(text: str) -> list[str]:
    found = re.search(r'<ul class="jobs-problems">(.*?)</ul>', text, re.S)
    items = re.findall(r"<li class=.*?</li>", found[1], re.S) if found else []
    return [" ".join(unescape(re.sub(r"<[^>]+>", " ", item)).split()) for item in items]


def test_nothing_is_wrong(root: Client) -> None:
    WorkerFactory()
    JobFactory(done=True, finished_at=ago(300))
    text = page(root)
    assert "Nothing is wrong" in text
    assert problems(text) == []


def test_what_is_wrong_comes_first_and_the_worst_of_it_before_the_rest(root: Client) -> None:
    WorkerFactory(host="pod", pid=7, last_seen=ago(200))
    JobFactory(run_at=ago(700))
    JobFactory(queue="mail", run_at=ago(10))
    QueueStateFactory(queue="mail")
    dead = JobFactory(queue="stock", dead=True, finished_at=ago(60))
    JobAttemptFactory.create_batch(6, job=dead)
    JobFactory(queue="stock", running=True, locked_until=ago(5))
    broken, late, last = (schedule(name=name) for name in ("broken", "late", "last"))
    CronSchedule.objects.filter(pk=broken.pk).update(broken="no such zone")
    CronSchedule.objects.filter(pk=late.pk).update(next_fire_at=ago(600))
    CronRun.objects.create(
        name=last.name, scheduled_for=ago(9), fired_at=ago(9), outcome="enqueued", job_id=JobFactory(dead=True).pk
    )
    text = page(root)
    assert [line.split()[0] for line in problems(text)] == ["Error"] * 8 + ["Warning"] * 3
    said = "\n".join(problems(text))
    for words in (
        "No worker is at work, and jobs are waiting.",
        "Jobs of the queue default wait: the first for 11 min, 1 in all.",
        "The queue mail is paused, and 1 job waits.",
        "1 job of the queue stock went DEAD in the last hour, 60 s ago.",
        "100 % of the attempts in the queue stock failed in the last hour.",
        "1 running job of the queue stock has lost its worker and is not taken over yet.",
        "The schedule broken is broken, and does not fire.",
        "The schedule late should have fired 10 min ago.",
        "The last run of the schedule last is dead.",
        "The worker pod:7 was last seen 3 min ago.",
    ):
        assert words in said, words
    assert text.index("jobs-problems") < text.index("jobs-queues-title")
    assert f'href="{url("changelist", queue="stock", status="DEAD")}"'.replace("&", "&amp;") in text


def test_a_queue_that_no_worker_serves_is_an_error(root: Client) -> None:
    WorkerFactory(queues="default")
    JobFactory(queue="mail", run_at=ago(1))
    assert problems(page(root)) == ["Error No worker takes jobs of the queue mail, and 1 waits."]


def test_only_so_many_problems_are_spelt_out(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    WorkerFactory()
    for number in range(25):
        schedule(name=f"s{number}")
    CronSchedule.objects.update(broken="no such zone")
    text = page(root)
    assert len(problems(text)) == 20
    assert "and 5 more" in text


def test_the_page_has_its_figures(root: Client) -> None:
    worker = WorkerFactory(host="pod", pid=7, slots=8, busy=3, version="1.2.3", queues="mail:4")
    JobFactory.create_batch(4, queue="mail")
    schedule(name="report", expression="30 9 * * *", timezone="Asia/Ho_Chi_Minh")
    CronRun.objects.create(name="report", scheduled_for=ago(90), fired_at=ago(90), outcome="skipped_overlap")
    text = page(root)
    for words in (
        "pod:7",
        "3 of 8 busy",
        "1.2.3",
        "mail:4",
        "30 9 * * *",
        "Asia/Ho_Chi_Minh",
        "The last run: 1 skipped",
    ):
        assert words in text, words
    assert url("change", worker.pk, model="worker") in text
    assert 'aria-label="0 done in the last hour' in text
    assert re.search(r'data-label="Ready"[^>]*><span class="jobs-figure"><a [^>]*>4</a>', text)


def test_the_part_is_the_same_without_the_page_around_it(root: Client) -> None:
    JobFactory(run_at=ago(1))
    whole, part = page(root), page(root, part=True)
    assert "<html" not in part
    assert problems(part) == problems(whole) == ["Error No worker is at work, and jobs are waiting."]


def test_a_problem_keeps_its_key_while_its_text_counts_on(root: Client) -> None:
    """What is read aloud is a new key, not each new number."""
    JobFactory.create_batch(2, dead=True, queue="a")
    schedule(name="s")
    CronSchedule.objects.update(broken="no such zone")
    keys = re.findall(r'data-key="([^"]*)"', page(root))
    JobFactory(dead=True, queue="a")
    assert re.findall(r'data-key="([^"]*)"', page(root)) == keys == ["dead:a", "schedule-broken:s", "fleet"]


def test_nothing_inline_that_a_strict_policy_forbids(root: Client) -> None:
    JobFactory(queue="<b>q</b>", dead=True)
    schedule()
    text = page(root)
    assert not re.search(r"<script(?![^>]*\bsrc=)[^>]*>|<style|\sstyle=|\son\w+=|javascript:", text)
    assert "<b>q</b>" not in text


def test_everybody_sees_the_parts_that_they_may(staff: Staff) -> None:
    parts = {"view_queuestate": "jobs-queues-title", "view_worker": "jobs-workers-title",
             "view_cronschedule": "jobs-schedules-title"}  # fmt: skip
    JobFactory(dead=True)
    schedule()
    for permission, title in parts.items():
        text = page(staff(permission))
        assert [each in text for each in parts.values()] == [each == title for each in parts.values()]
        assert ("DEAD" in "".join(problems(text))) == (permission == "view_queuestate")
    assert "jobs-queues-title" in page(staff("view_job"))
    for part in ("", "_part"):
        assert staff("view_fence").get(reverse(f"admin:django_reliable_jobs_overview{part}")).status_code == 403


def test_links_lead_only_where_the_user_may_go(staff: Staff) -> None:
    WorkerFactory()
    JobFactory()
    schedule()
    text = page(staff("view_queuestate", "view_worker", "view_cronschedule"))
    assert url("changelist") not in text
    assert url("changelist", model="cronrun") not in text


def test_without_a_login_there_is_nothing(client: Client) -> None:
    for part in ("", "_part"):
        answer = client.get(reverse(f"admin:django_reliable_jobs_overview{part}"))
        assert answer.status_code == 302
        assert "/login/" in answer["Location"]


def test_viewers_have_no_buttons(staff: Staff) -> None:
    JobFactory()
    assert "<form" not in page(staff(*ALL), part=True)
    assert "<form" in page(staff(*ALL, "pause_queue"), part=True)


def test_the_app_index_leads_to_it(root: Client) -> None:
    address = reverse("admin:django_reliable_jobs_overview")
    assert address in root.get(reverse("admin:app_list", args=["django_reliable_jobs"])).content.decode()


def test_a_site_without_some_pages_shows_no_links_to_them(root: Client, rf: object) -> None:
    from django.contrib.auth.models import User
    from django.test import RequestFactory

    from django_reliable_jobs.admin.overview.page import SiteLinks

    request = RequestFactory().get("/")
    request.user = User.objects.get()
    links = SiteLinks(request, AdminSite("nowhere").name)
    assert links.jobs("default", "") == url("changelist", queue="default"), "the default site serves as a fallback"
    assert links.worker(5) == url("change", 5, model="worker")


def test_few_queries_whatever_is_there(root: Client, django_assert_max_num_queries: object) -> None:
    JobFactory.create_batch(20, queue="a")
    for number in range(12):
        JobFactory(queue=f"queue-{number}", dead=True)
        WorkerFactory(host=f"pod-{number}")
        schedule(name=f"s{number}")
        CronRun.objects.create(name=f"s{number}", scheduled_for=ago(1), fired_at=ago(1), outcome="error")
    page(root)
    with django_assert_max_num_queries(20):  # type: ignore[operator]
        page(root)


def test_get_changes_nothing(root: Client) -> None:
    JobFactory.create_batch(2)
    WorkerFactory(last_seen=ago(10_000))
    before = list(Job.objects.values()), list(Worker.objects.values())
    page(root)
    page(root, part=True)
    assert (list(Job.objects.values()), list(Worker.objects.values())) == before


# --- words and charts


@pytest.mark.parametrize(
    ("seconds", "said"), [(-3, "0 s"), (0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_spans(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_counts_and_shares() -> None:
    assert [count(Count(12_345)), count(Count(10_000, True)), count(Count(0))] == ["12,345", "10,000+", "0"]
    assert [percent(0.0), percent(0.0001), percent(0.0234), percent(0.5)] == ["0 %", "< 0.1 %", "2.3 %", "50 %"]


def test_bars_are_as_high_as_their_part() -> None:
    chart = columns([0, 5, 10, None], "label", "done")
    assert [(shape.kind, shape.path) for shape in chart.shapes] == [
        ("done", "M4 32v-16h3v16zM8 32v-32h3v32z"),
        ("unknown", "M12 32v-2h3v2z"),
    ]
    assert columns([0, 0], "label", "done").shapes == ()


def test_a_strip_says_in_words_what_its_colours_say() -> None:
    runs = [RunFigures(n, ago(n), ago(n), "enqueued", 0, status) for n, status in enumerate(["DONE", "DONE", "DEAD"])]
    chart = strip(runs)
    assert chart.label == "The last 3 runs: 2 done, 1 dead"
    heights = {shape.kind: re.findall(r"v-([\d.]+)h", shape.path) for shape in chart.shapes}
    assert heights == {"done": ["14", "14"], "dead": ["32"]}
    assert overview_problems.ERROR
