"""What the shop's views call. Each writes rows and enqueues jobs in one transaction: both happen, or neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from django_reliable_jobs import control
from testproject.shop import jobs
from testproject.shop.models import Customer, Import, Order, Product


def place_order(customer: Customer, product: Product, quantity: int = 1, *, express: bool = False) -> Order:
    """An express order goes ahead of the others in the queue."""
    with transaction.atomic():
        order = Order.objects.create(customer=customer, product=product, quantity=quantity)
        reservation = jobs.reserve_stock.using(priority=50) if express else jobs.reserve_stock
        order.reservation_job = reservation.enqueue(order.pk).pk
        order.save(update_fields=["reservation_job"])
    return order


def cancel_order(order: Order) -> bool:
    """False when the books have been taken from stock already. A job that still waits is cancelled with its order."""
    with transaction.atomic():
        # Whoever is first, this or the job: the other one finds another status, and changes nothing.
        changed = Order.objects.filter(pk=order.pk, status__in=Order.WAITING).update(status=Order.Status.CANCELLED)
        if changed and order.reservation_job is not None:
            control.cancel(order.reservation_job)
    return bool(changed)


def upload(name: str, records: Sequence[dict[str, Any]]) -> Import:
    """Keep the records of a file, and have them imported."""
    with transaction.atomic():
        batch = Import.objects.create(name=name, records=list(records))
        jobs.import_records.using(idempotency_key=f"import:{batch.pk}").enqueue(batch.pk)
    return batch


def advertise(subject: str) -> int:
    """A mail to every customer, behind everything else; the number of mails. Thousands take one round trip."""
    customers = Customer.objects.order_by("pk").values_list("pk", flat=True)
    mails = jobs.send_newsletter.using(idempotency_key=lambda customer_id, subject: f"news:{subject}:{customer_id}")
    return len(mails.enqueue_many([(customer_id, subject) for customer_id in customers]))
