#!/usr/bin/env bash
# A new project, made by the book, with the wheel in an empty virtual environment:
#   fresh_project.sh <python> <wheel>      with DATABASE_URL set to an empty database
set -euo pipefail
python=$1 wheel=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH DJANGO_SETTINGS_MODULE

"$python" -m venv "$work/venv"
PATH="$work/venv/bin:$PATH"
export PIP_DISABLE_PIP_VERSION_CHECK=1
pip install --quiet "$wheel" "psycopg[binary]"
pip check
mkdir "$work/project"
cd "$work/project"
django-admin startproject mysite .
python manage.py startapp hello

cat >>mysite/settings.py <<'PYTHON'

INSTALLED_APPS += ["django_reliable_jobs", "hello"]

import os
from psycopg.conninfo import conninfo_to_dict

_found = conninfo_to_dict(os.environ["DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _found["dbname"],
        "USER": _found["user"],
        "PASSWORD": _found.get("password", ""),
        "HOST": _found["host"],
        "PORT": _found["port"],
    }
}
PYTHON

cat >hello/jobs.py <<'PYTHON'
from pathlib import Path

from django_reliable_jobs import job


@job
def greet(name: str) -> str:
    Path("greeting").write_text(f"Hello, {name}")
    return name
PYTHON

python manage.py check --fail-level WARNING
python manage.py makemigrations --check --dry-run
python manage.py migrate --verbosity 0
python manage.py shell -c 'from hello.jobs import greet; greet.enqueue("world")'
python manage.py jobworker --burst
test "$(cat greeting)" = "Hello, world"
python manage.py shell -c '
from django_reliable_jobs.models import Job
job = Job.objects.get()
assert (job.name, job.status, job.result) == ("hello.greet", "DONE", "world"), (job.name, job.status, job.result)
'
echo "a fresh project runs a job"
