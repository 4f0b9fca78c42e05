"""What every page of the operations admin shares: who may do what, the log, the window of a list, the registration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.sites import AdminSite
from django.core.exceptions import PermissionDenied
from django.db import connections, models, transaction
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.functional import Promise

from django_reliable_jobs.admin.paging import Path, WindowChangeList

if TYPE_CHECKING:
    ModelAdminBase = admin.ModelAdmin[Any]
else:
    ModelAdminBase = admin.ModelAdmin

APP = "django_reliable_jobs"

#: Model -> its admin, in the order of their definition; `register` hands them to a site.
ADMINS: dict[type[models.Model], type[OperationsAdmin]] = {}

AdminClass = TypeVar("AdminClass", bound="type[OperationsAdmin]")
Answer = HttpResponseBase


def manages(model: type[models.Model]) -> Callable[[AdminClass], AdminClass]:
    """Class decorator: this is the admin of `model` on every site that `register` is called with."""

    def note(cls: AdminClass) -> AdminClass:
        ADMINS[model] = cls
        return cls

    return note


def register(site: AdminSite) -> None:
    """Put the app's pages on an admin site. The default site has them already; models that a site knows are left."""
    for model, cls in ADMINS.items():
        if not site.is_registered(model):
            site.register(model, cls)


class OperationsAdmin(ModelAdminBase):
    """Read-only, and quick on large tables.

    - Nobody adds, changes or deletes by a form, whatever permissions they have: an admin that offers one overrides
      `has_add_permission` and its like, and calls `allows`.
    - Its list is a window (see `paging`): nothing counts or sorts the whole table. `window_path` says in which order.
    - `act` makes a view that changes something; `link` and `log` are for what it writes.
    """

    change_list_template = "admin/django_reliable_jobs/change_list.html"
    change_form_template = "admin/django_reliable_jobs/change_form.html"
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    sortable_by = ()
    show_facets = admin.ShowFacets.NEVER
    #: Query parameters that `window_path` turns into a path of their own; others are tried on the rows of a larger window.
    served_filters: frozenset[str] = frozenset()
    #: What the search finds. Not Django's `search_help_text`, which takes the field its visible label in axe's eyes.
    search_note: str | Promise = ""
    #: Shown beside the list where the order or what is searched needs a word.
    window_note: str | Promise = ""
    actions: Any = ()

    class Media:
        css = {"all": ["django_reliable_jobs/admin.css"]}

    # Permissions

    def allows(self, request: HttpRequest, permission: str) -> bool:
        """Whether the user may see this page and has the app's permission ("retry_job", "change_job", …)."""
        return bool(self.has_view_permission(request) and request.user.has_perm(f"{APP}.{permission}"))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    # The list

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[WindowChangeList]:
        return WindowChangeList

    def window_path(self, request: HttpRequest) -> Path:
        """The order of the list, by an index. Depends on `request.GET` where a filter has an index of its own."""
        return Path(("-pk",))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """An action that the user may not do is refused; Django would ignore it."""
        asked = {name for name in request.POST.getlist("action") if name}
        if asked and not asked <= self.get_actions(request).keys():
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

    # Views that act

    def act_url(self, name: str, view: Callable[..., Answer], route: str) -> URLPattern:
        """A URL named `<app>_<model>_<name>`. Outside `ATOMIC_REQUESTS`: a batch commits when it is done."""
        wrapped = self.admin_site.admin_view(view)
        for alias in connections:
            wrapped = transaction.non_atomic_requests(using=alias)(wrapped)
        return path(route, wrapped, name=f"{self.opts.app_label}_{self.opts.model_name}_{name}")

    def link(self, name: str, *args: Any, model: type[models.Model] | None = None) -> str:
        """The address of a page of this site: `link("change", 5)`, `link("changelist", model=Worker)`."""
        opts = self.opts if model is None else model._meta
        pattern = f"admin:{opts.app_label}_{opts.model_name}_{name}"
        return reverse(pattern, args=args, current_app=self.admin_site.name)

    def link_or_none(self, name: str, *args: Any, model: type[models.Model] | None = None) -> str | None:
        """`link`, or None where this site has no such page."""
        try:
            return self.link(name, *args, model=model)
        except NoReverseMatch:
            return None

    def page(self, request: HttpRequest, template: str, title: str | Promise, **context: Any) -> TemplateResponse:
        """A page of this admin with `admin/django_reliable_jobs/<template>`."""
        request.current_app = self.admin_site.name
        everywhere = {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media, "title": title}
        return TemplateResponse(request, f"admin/{APP}/{template}", everywhere | context)

    def log(
        self, request: HttpRequest, objects: Iterable[models.Model], message: str | Promise, flag: int = CHANGE
    ) -> None:
        """One entry of the admin log for each object. In the caller's transaction, if that is the same database's."""
        if rows := list(objects):
            LogEntry.objects.log_actions(request.user.pk or 0, rows, flag, str(message))


def act(*permissions: str, methods: Sequence[str] = ("POST",)) -> Callable[[Any], Any]:
    """Method decorator for a view: 405 for another method, 403 without one of the app's permissions.

    With `methods=("GET", "POST")` GET shows a page of confirmation; it must not change anything. CSRF is enforced by
    the admin site's own wrapper.
    """

    def decorate(view: Any) -> Any:
        @wraps(view)
        def checked(self: OperationsAdmin, request: HttpRequest, *args: Any, **kwargs: Any) -> Answer:
            if not all(self.allows(request, permission) for permission in permissions):
                raise PermissionDenied
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            answer: Answer = view(self, request, *args, **kwargs)
            return answer

        return checked

    return decorate
