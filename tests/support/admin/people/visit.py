"""python -m tests.support.admin.people.visit: somebody of the project's own user model retries a job in the admin."""

from __future__ import annotations

import os

import django


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.support.admin.people.settings"
    django.setup()
    from django.contrib.admin.models import LogEntry
    from django.core.management import call_command
    from django.test import Client
    from django.urls import reverse

    from tests.support.admin.people.models import Person
    from tests.support.factories import JobFactory

    call_command("migrate", verbosity=0)
    client, job = Client(), JobFactory(dead=True)
    person = Person.objects.create(email="mai@example.com", is_superuser=True)
    client.force_login(person)
    for page in ("changelist", "act"):
        assert client.get(reverse(f"admin:django_reliable_jobs_job_{page}")).status_code == 200
    answer = client.post(reverse("admin:django_reliable_jobs_job_act"), {"verb": "retry", "ids": str(job.pk)})
    assert answer.status_code == 302, answer.status_code
    entry = LogEntry.objects.get()
    job.refresh_from_db()
    print(job.status, entry.user_id == person.pk, entry.object_repr)


if __name__ == "__main__":
    main()
