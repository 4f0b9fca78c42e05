"""Who looks at the pages. Each one's password is the name."""

from __future__ import annotations

from django.contrib.auth.models import Permission, User

APP = "django_reliable_jobs"


def make_people() -> None:
    """`boss` may do everything; `viewer` is staff and may look at everything of ours, and no more."""
    User.objects.create_superuser("boss", password="boss")
    viewer = User.objects.create_user("viewer", password="viewer", is_staff=True)
    viewer.user_permissions.set(Permission.objects.filter(content_type__app_label=APP, codename__startswith="view_"))
