"""The shop's tables in the admin; its actions enqueue jobs."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from django_reliable_jobs import AlreadyEnqueued
from testproject.shop import jobs, orders
from testproject.shop.models import (
    Account,
    Charge,
    Customer,
    Import,
    ImportedRecord,
    Invoice,
    LedgerEntry,
    Order,
    Product,
    SentMail,
    StockMove,
    Subscription,
)


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):
    list_display = ["name", "email"]
    search_fields = ["name", "email"]


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ["sku", "title", "author", "year", "price", "stock"]
    search_fields = ["sku", "title", "author"]
    readonly_fields = ["stock"]  # It moves while somebody looks at the form: saving it would write an old number.


@admin.register(StockMove)
class StockMoveAdmin(admin.ModelAdmin):
    list_display = ["product", "quantity", "source", "at"]
    list_select_related = ["product"]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["id", "customer", "product", "quantity", "status", "carrier", "placed_at"]
    list_filter = ["status", "carrier"]
    list_select_related = ["customer", "product"]
    actions = ["cancel"]

    @admin.action(description="Cancel the selected orders")
    def cancel(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        cancelled = sum(orders.cancel_order(order) for order in queryset)
        self.message_user(request, f"{cancelled} orders cancelled; the others are reserved already.")


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):
    list_display = ["id", "order", "total", "booked_at", "sent_at"]
    list_select_related = ["order"]


@admin.register(Account)
class AccountAdmin(admin.ModelAdmin):
    list_display = ["code", "balance"]
    readonly_fields = ["balance"]


@admin.register(LedgerEntry)
class LedgerEntryAdmin(admin.ModelAdmin):
    list_display = ["account", "invoice", "amount", "at"]
    list_select_related = ["account", "invoice"]


@admin.register(Subscription)
class SubscriptionAdmin(admin.ModelAdmin):
    list_display = ["id", "customer", "fee", "card", "paid_until", "active"]
    list_filter = ["active"]
    list_select_related = ["customer"]
    actions = ["renew"]

    @admin.action(description="Renew the selected subscriptions now")
    def renew(self, request: HttpRequest, queryset: QuerySet[Subscription]) -> None:
        for subscription in queryset:
            try:
                job = jobs.renew_subscription.using(if_exists="raise", priority=30).enqueue(subscription.pk)
            except AlreadyEnqueued as error:
                text = f"{subscription} is being renewed already, by job {error.job.pk}."
                self.message_user(request, text, messages.WARNING)
            else:
                self.message_user(request, f"{subscription} will be renewed by job {job.pk}.")


@admin.register(Import)
class ImportAdmin(admin.ModelAdmin):
    list_display = ["name", "created_at", "finished_at"]


@admin.register(ImportedRecord)
class ImportedRecordAdmin(admin.ModelAdmin):
    list_display = ["batch", "number", "product", "job_id", "attempt"]
    list_filter = ["batch"]
    list_select_related = ["batch", "product"]


@admin.register(SentMail)
class SentMailAdmin(admin.ModelAdmin):
    list_display = ["to", "subject", "requests", "at"]
    search_fields = ["to", "subject"]


@admin.register(Charge)
class ChargeAdmin(admin.ModelAdmin):
    list_display = ["key", "card", "amount", "settled", "at"]
