"""N20: a role that lacks rights. The worker says which, everywhere; and the least rights of the guide are enough."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from django_reliable_jobs import guards
from django_reliable_jobs.control.schedules import save_schedule
from django_reliable_jobs.errors import AlreadyEnqueued
from django_reliable_jobs.fencing import fence
from django_reliable_jobs.models import Job, Worker
from django_reliable_jobs.store import privileges
from django_reliable_jobs.store.tokens import fencing_tokens
from testproject.postgres import PROJECT_ROOT, url_of
from tests.support.fleet import Fleet, wait_until
from tests.support.look import all_done, fresh, marked, sql
from tests.support.probes import jobs as probes
from tests.support.probes.models import Mark

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "least-rights.md"
PROBLEM = "Rights are missing in the database: "


def of_the_guide(part: str, role: str, schema: str = "public") -> str:
    """The guide's statements, for another role."""
    found = re.search(rf"^```sql {part}\n(.*?)^```$", GUIDE.read_text(), re.S | re.M)
    assert found is not None
    return re.sub(r"\bapp_\w+", role, found[1]).replace("SCHEMA public", f"SCHEMA {schema}")


@pytest.fixture
def role(transactional_db: None) -> Iterator[str]:
    """A role that may log in, and nothing else."""
    name = f"least_{uuid4().hex[:12]}"
    sql(f"CREATE ROLE {name} LOGIN PASSWORD 'least' NOSUPERUSER NOCREATEDB NOCREATEROLE")
    sql(f"REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT ALL ON probes_mark TO {name}")
    yield name
    sql(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def url_for(role: str) -> str:
    return url_of({**connection.settings_dict, "USER": role, "PASSWORD": "least"})


@contextmanager
def as_role(role: str) -> Iterator[None]:
    sql(f"SET ROLE {role}")
    try:
        yield
    finally:
        sql("RESET ROLE")


def problem() -> str:
    worker = Worker.objects.first()
    return worker.problem if worker else ""


def test_a_role_with_rights_on_tables_only_is_told_the_grant_and_works_when_it_has_it(
    fleet: Fleet, role: str, client: Client
) -> None:
    sql(of_the_guide("worker", role))
    sql(f"REVOKE ALL ON SEQUENCE django_reliable_jobs_fencing_token FROM {role}")
    job = probes.note.enqueue("at last")
    worker = fleet.start(env={"DATABASE_URL": url_for(role)})
    grant = f'GRANT SELECT, USAGE ON SEQUENCE django_reliable_jobs_fencing_token TO "{role}";'
    worker.logged(grant)
    wait_until(lambda: problem() == PROBLEM + grant, "its row to say it")
    worker.logged("permission denied for sequence")
    client.force_login(User.objects.create_superuser("root"))
    assert "cannot do all its work" in client.get(reverse("admin:django_reliable_jobs_overview")).content.decode()
    for page in (
        client.get(reverse("admin:django_reliable_jobs_worker_changelist")),
        client.get(reverse("admin:django_reliable_jobs_worker_change", args=[Worker.objects.get().pk])),
    ):
        assert "has a problem" in page.content.decode()
    sql(grant)
    all_done([job])
    wait_until(lambda: problem() == "", "its row to say that it is over")
    worker.logged("has the rights in the database that it needs")
    assert worker.text.count("this worker cannot do all its work") == 1
    assert worker.text.count("permission denied") <= 3, "once a minute from each part"
    assert worker.stop() == 0


def test_rights_that_are_lost_while_it_runs_cost_no_finished_job(fleet: Fleet, role: str) -> None:
    sql(of_the_guide("worker", role))
    worker = fleet.start(env={"DATABASE_URL": url_for(role)}, settings={"LEASE": 30, "HEARTBEAT": 10})
    job = probes.pairs_up.enqueue("began", "go on")
    marked("began")
    sql(f"REVOKE UPDATE ON django_reliable_jobs_job FROM {role}")
    Mark.objects.create(label="go on", job_id=0, token=0, attempt=0, pid=0)
    worker.logged("permission denied for table")
    worker.logged(f'GRANT UPDATE ON django_reliable_jobs_job TO "{role}";')
    assert fresh(job).status == "RUNNING"
    sql(of_the_guide("worker", role))
    all_done([job])
    assert fresh(job).attempts == 1
    assert "cannot be stored" not in worker.text
    assert worker.stop() == 0


def test_a_burst_without_rights_ends(fleet: Fleet, role: str) -> None:
    sql(of_the_guide("worker", role))
    sql(f"REVOKE ALL ON SEQUENCE django_reliable_jobs_fencing_token FROM {role}")
    probes.noop.enqueue()
    assert fleet.burst(env={"DATABASE_URL": url_for(role)}).process.returncode == 1


def test_a_worker_without_a_look_at_the_migrations_says_what_it_needs(fleet: Fleet, role: str) -> None:
    worker = fleet.start(env={"DATABASE_URL": url_for(role)})
    worker.logged("its role needs USAGE on the schema and SELECT on django_migrations")
    sql(of_the_guide("worker", role))
    job = probes.noop.enqueue()
    all_done([job])
    assert worker.stop() == 0


def test_the_least_rights_of_a_worker_are_enough(fleet: Fleet, role: str) -> None:
    sql(of_the_guide("worker", role))
    with as_role(role):
        assert privileges.missing("default") == []
    save_schedule("often", "probes.note", "@every 1s", args=["fired"])
    jobs = [
        probes.noop.enqueue(), probes.note.enqueue("a"), probes.isolated_atomic.enqueue("b"),
        probes.answers.enqueue("retry", 0.05, 2),
    ]  # fmt: skip
    gone = probes.noop.using(delay=3600).enqueue()
    sql("UPDATE django_reliable_jobs_job SET name = 'gone', run_at = now() WHERE id = %s", gone.pk)
    old = probes.noop.enqueue()
    sql(
        "UPDATE django_reliable_jobs_job SET status = 'DONE', finished_at = now() - interval '1y' WHERE id = %s", old.pk
    )
    settings = {"UNKNOWN_JOB_AFTER": 1, "RETENTION": {"DONE": 86400}}
    worker = fleet.start(env={"DATABASE_URL": url_for(role)}, settings=settings)
    all_done(jobs)
    marked("fired", 2)
    wait_until(lambda: fresh(gone).status == "DEAD")
    wait_until(lambda: not Job.objects.filter(pk=old.pk).exists(), timeout=120)
    assert problem() == ""
    assert worker.stop() == 0
    assert "permission denied" not in worker.text


def test_the_least_rights_of_a_web_process_are_enough(role: str) -> None:
    sql(of_the_guide("web", role))
    with as_role(role):
        assert probes.noop.enqueue().created
        assert len(probes.noop.enqueue_many([(1,), (2,)])) == 2
        assert probes.noop.using(idempotency_key="i").enqueue().created
        assert not probes.noop.using(idempotency_key="i").enqueue().created
        probes.noop.using(unique_key="u", delay=60).enqueue(1)
        assert not probes.noop.using(unique_key="u", if_exists="replace").enqueue(2).created
        with pytest.raises(AlreadyEnqueued):
            probes.noop.using(unique_key="u", if_exists="raise").enqueue(3)
    sql(of_the_guide("guards", role))
    with as_role(role):
        assert guards.claim_once("once")
        assert guards.claim_period("period", 60)
        assert guards.run_once("run", 60, lambda: 1)
        with transaction.atomic():
            fence("a thing", fencing_tokens("default")[0])


def test_the_least_rights_of_migrate_are_enough_and_default_privileges_those_of_a_worker(
    role: str, subprocess_env: dict[str, str]
) -> None:
    schema = f"s_{role}"
    sql(f"CREATE SCHEMA {schema}; {of_the_guide('migrate', role, schema)} ALTER ROLE {role} SET search_path = {schema}")
    worker = f"{role}_w"
    sql(f"CREATE ROLE {worker}")
    try:
        default = of_the_guide("default", role, schema).replace(f"TO {role};", f"TO {worker};")
        sql(default)
        env = {**subprocess_env, "DATABASE_URL": url_for(role), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        done = subprocess.run(
            [sys.executable, "manage.py", "migrate", "-v", "0"], env=env, cwd=PROJECT_ROOT, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        sql(f"GRANT USAGE ON SCHEMA {schema} TO {worker}; SET search_path = {schema}")
        with as_role(worker):
            assert privileges.missing("default") == []
    finally:
        sql(f"RESET search_path; DROP SCHEMA {schema} CASCADE; DROP OWNED BY {worker} CASCADE; DROP ROLE {worker}")


def test_the_guide_names_every_table() -> None:
    text = of_the_guide("worker", "r")
    assert set(re.findall(r"\bdjango_reliable_jobs_\w+", text)) == {*privileges.tables(), *privileges.ON_SEQUENCES}
