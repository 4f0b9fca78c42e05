"""DEPLOY_DATABASE is the entry of DATABASES, as JSON."""

import json
import os

SECRET_KEY = "no secret"
DATABASES = {"default": json.loads(os.environ["DEPLOY_DATABASE"])}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_reliable_jobs", "deploy"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
RELIABLE_JOBS = {
    "LEASE": 3, "HEARTBEAT": 1, "POLL": 0.5, "GRACE": 5, "BACKOFF": {"base": 0.1, "factor": 1, "cap": 1},
}  # fmt: skip
