"""Guard claims, with the release of one that is stuck, and fences. The claims are those of guards in the database."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin import SimpleListFilter
from django.db.models import BooleanField, Case, DateTimeField, Func, Q, QuerySet, Value, When
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_reliable_jobs.admin.base import OperationsAdmin, act, manages
from django_reliable_jobs.admin.paging import Path
from django_reliable_jobs.models import Fence, GuardClaim
from django_reliable_jobs.store import guards

_CLOCK = Func(function="statement_timestamp", output_field=DateTimeField())
_HELD = Q(expires_at__isnull=True) | Q(expires_at__gt=_CLOCK)

#: What it means to free a key, by the kind that it begins with.
MEANINGS = {
    "period": gettext_lazy("The period has been taken. If it is released, somebody may take the same period again."),
    "once": gettext_lazy("This was claimed to be done once. If it is released, it may be done again."),
    "run": gettext_lazy(
        "A run holds this key while it works. If it is released, another may begin while that one goes on."
    ),
    "exclusive": gettext_lazy(
        "Somebody works under this key. If it is released, another may begin while that one goes on, until it finds out."
    ),
}


class HeldFilter(SimpleListFilter):
    title = gettext_lazy("state")
    parameter_name = "held"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", gettext_lazy("held")), ("no", gettext_lazy("free"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[GuardClaim]) -> QuerySet[GuardClaim]:
        if self.value() == "yes":
            return queryset.filter(_HELD)
        return queryset.exclude(_HELD) if self.value() == "no" else queryset


@manages(GuardClaim)
class GuardClaimAdmin(OperationsAdmin):
    """Read-only but for the release, which needs the permission to change guard claims."""

    list_display = ("key", "state", "owner", "fencing_token", "claimed_at", "expires_at")
    list_filter = (HeldFilter,)
    search_fields = ("key",)
    change_form_template = "admin/django_reliable_jobs/guardclaim/change_form.html"
    fields = ("key", "state", "owner", "fencing_token", "claimed_at", "expires_at")
    readonly_fields = fields
    window_note = gettext_lazy("Guards that are kept elsewhere, such as in Redis, are not listed.")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        held = Case(When(_HELD, then=Value(True)), default=Value(False), output_field=BooleanField())
        claims: QuerySet[Any] = super().get_queryset(request).annotate(held=held)
        return claims

    def get_urls(self) -> list[Any]:
        return [self.act_url("release", self.release_view, "<int:pk>/release/"), *super().get_urls()]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        claim = kwargs.get("obj")
        if claim is not None and claim.held and not claim.done and self.allows(request, "change_guardclaim"):
            context |= {
                "claim": claim,
                "release_url": self.link("release", claim.pk),
                "meaning": MEANINGS.get(claim.key.partition(":")[0], ""),
            }
        answer: HttpResponse = super().render_change_form(request, context, *args, **kwargs)
        return answer

    @act("change_guardclaim")
    def release_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Free the key, if the claim is still the one that the person saw: its token is in the form."""
        claim = self.get_queryset(request).filter(pk=pk).first()
        if claim is None:
            raise Http404
        text = request.POST.get("token", "")
        token = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
        values = {"key": claim.key}
        if guards.release(claim._state.db, claim.key, token):
            self.log(request, [claim], _("Released the claim with token %(token)s.") % {"token": token})
            self.message_user(request, _("The key %(key)s is free.") % values, messages.SUCCESS)
        else:
            said = _("The key %(key)s is not held by the claim that you saw any more: nothing was done.")
            self.message_user(request, said % values, messages.WARNING)
        return HttpResponseRedirect(self.link("change", pk))

    @admin.display(description=gettext_lazy("state"))
    def state(self, claim: Any) -> str | Promise:
        if not claim.held:
            return gettext_lazy("free")
        return gettext_lazy("done") if claim.done else gettext_lazy("held")


@manages(Fence)
class FenceAdmin(OperationsAdmin):
    """Read-only: without its row a fence would let an old owner pass."""

    list_display = ("name", "fencing_token", "passed_at")
    search_fields = ("name",)
    fields = ("name", "fencing_token", "passed_at")
    readonly_fields = fields

    def window_path(self, request: HttpRequest) -> Path:
        return Path(("pk",))
