"""The shop's jobs. Every worker imports this module by itself, since it is the `jobs.py` of an installed app.

An order goes through these: reserve_stock -> book_invoice -> send_invoice, arrange_shipping -> send_shipping_notice.
The first two enqueue the next in the transaction of their own writes: the chain never breaks, and never runs on without
its rows.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.db.models import F, Sum
from django.db.models.functions import Now

from django_reliable_jobs import (
    Backoff,
    JobContext,
    PermanentFailure,
    Retry,
    Snooze,
    cron,
    current_job,
    every,
    job,
)
from testproject.shop import inventory, services
from testproject.shop.models import (
    Account,
    Customer,
    Import,
    ImportedRecord,
    Invoice,
    LedgerEntry,
    Order,
    Product,
    Subscription,
)

CARRIERS = ("Snail", "Courier", "Drone")

# --- inventory and invoices -----------------------------------------------------------------------


@job(queue="stock", priority=20, atomic=True, timeout=30, dead_on=[ObjectDoesNotExist])
def reserve_stock(order_id: int) -> Snooze | None:
    """Take an order's books from stock, exactly once.

    Atomic: the counter, the invoice, the next job and the mark DONE commit together, or not at all.
    """
    order = Order.objects.select_related("product").get(pk=order_id)
    waiting = Order.objects.filter(pk=order_id, status__in=Order.WAITING)
    if not waiting.update(status=Order.Status.RESERVED):
        return None  # It was cancelled.
    if not inventory.take(order.product_id, order.quantity, source=f"order {order_id}"):
        Order.objects.filter(pk=order_id).update(status=Order.Status.BACKORDERED)
        restock.enqueue(order.product_id)
        # Returned and not raised: what was written so far commits. It uses up no attempt, so it may go on for weeks.
        return Snooze(2)
    invoice = Invoice.objects.create(order=order, total=order.product.price * order.quantity)
    book_invoice.enqueue(invoice.pk)
    index_product.using(delay=1).enqueue(order.product_id)
    return None


@job(queue="stock", atomic=True, unique_key=lambda product_id: f"restock:{product_id}")
def restock(product_id: int) -> None:
    """Order more from the supplier. The unique key makes it one delivery, however many orders wait for the book."""
    context = current_job()
    inventory.put(product_id, 40, source=f"restock {context.job_id if context else 'by hand'}")


@job(priority=10, atomic=True, timeout=30, dead_on=[ObjectDoesNotExist])
def book_invoice(invoice_id: int) -> None:
    """Book an invoice into the accounts, exactly once, and have it sent."""
    invoice = Invoice.objects.get(pk=invoice_id)
    sales, _ = Account.objects.get_or_create(code="sales")
    Account.objects.filter(pk=sales.pk).update(balance=F("balance") + invoice.total)
    LedgerEntry.objects.create(account=sales, invoice=invoice, amount=invoice.total)
    Invoice.objects.filter(pk=invoice_id).update(booked_at=Now())
    send_invoice.using(idempotency_key=f"invoice:{invoice_id}").enqueue(invoice_id)
    arrange_shipping.enqueue(invoice.order_id)


# --- mail -----------------------------------------------------------------------------------------


@job(
    queue="mail",
    max_attempts=6,
    timeout=30,
    backoff=Backoff(base=1, factor=2, cap=600),
    dead_on=[services.BadAddress, ObjectDoesNotExist],
    takes_context=True,
    aliases=["shop.mail_invoice"],  # Its name before a rename: jobs that bear it still run.
)
def send_invoice(ctx: JobContext, invoice_id: int) -> None:
    """Mail an invoice. The provider fails now and then, and is asked again, later each time.

    All attempts have the same `ctx.idempotency_key`: if the provider took the mail and its answer was lost, or this
    worker died, the next attempt's request sends no second mail.
    """
    invoice = Invoice.objects.select_related("order__customer").get(pk=invoice_id)
    services.send_mail(ctx.idempotency_key, invoice.order.customer.email, f"Your invoice no. {invoice_id}")
    Invoice.objects.filter(pk=invoice_id, sent_at=None).update(sent_at=Now())


@job(queue="mail", backoff=[1, 5, 60], dead_on=[services.BadAddress])
def send_shipping_notice(order_id: int) -> None:
    """Tell the customer that the books are on their way."""
    order = Order.objects.select_related("customer").get(pk=order_id)
    subject = f"Your order no. {order_id} comes by {order.carrier}"
    services.send_mail(f"shipped:{order_id}", order.customer.email, subject)


@job(queue="mail", priority=-50, expires=timedelta(days=2), backoff=[2, 10, 60], dead_on=[services.BadAddress])
def send_newsletter(customer_id: int, subject: str) -> None:
    """One newsletter to one customer: behind all other mail, and not at all once it is old news."""
    customer = Customer.objects.get(pk=customer_id)
    services.send_mail(f"news:{subject}:{customer_id}", customer.email, subject)


@job(queue="mail", priority=60, expires=timedelta(minutes=15), redact=["link"], dead_on=[services.BadAddress])
def send_login_link(customer_id: int, link: str) -> None:
    """A link to log in with: a secret, so people who look at jobs do not see it; and of no use after a while."""
    customer = Customer.objects.get(pk=customer_id)
    services.send_mail(f"login:{link}", customer.email, "Your login")


# --- shipping: a coroutine ------------------------------------------------------------------------


@job(timeout=20)
async def arrange_shipping(order_id: int) -> dict[str, str | Decimal]:
    """Ask all carriers at the same time and take the cheapest. The result is kept with the job."""
    order = await Order.objects.aget(pk=order_id)
    prices = await asyncio.gather(*(services.quote(carrier, order.quantity) for carrier in CARRIERS))
    price, carrier = min(zip(prices, CARRIERS, strict=True))
    await Order.objects.filter(pk=order_id).aupdate(status=Order.Status.SHIPPED, carrier=carrier)
    # The key makes it safe to come here twice: the second enqueue returns the job that is there.
    await send_shipping_notice.using(idempotency_key=f"shipping-notice:{order_id}").aenqueue(order_id)
    return {"carrier": carrier, "price": price}


# --- subscriptions --------------------------------------------------------------------------------


@job(
    max_attempts=4,
    timeout=30,
    backoff=lambda attempt: 5.0 * attempt,
    unique_key=lambda subscription_id: f"renew:{subscription_id}",
    expires=timedelta(hours=6),
)
def renew_subscription(subscription_id: int) -> None:
    """Charge one month and move `paid_until`. However often it is enqueued, a subscription has one unfinished job."""
    subscription = Subscription.objects.get(pk=subscription_id)
    if not subscription.active:
        return
    month = subscription.paid_until
    try:
        answered = services.charge(f"renewal:{subscription_id}:{month}", subscription.card, subscription.fee)
    except services.CardClosed as error:
        Subscription.objects.filter(pk=subscription_id).update(active=False)
        raise PermanentFailure(f"subscription {subscription_id}: {error}") from error  # DEAD at once: a person decides.
    except services.GatewayBusy as error:
        raise Retry(delay=error.retry_after) from error  # Uses up an attempt; the other side says when to come again.
    if not answered:
        raise Snooze(1)  # Not our failure: no attempt is used up.
    # Compare and set: of two runs for the same month only one moves the date.
    next_month = month + timedelta(days=30)
    Subscription.objects.filter(pk=subscription_id, paid_until=month).update(paid_until=next_month)


# --- imports --------------------------------------------------------------------------------------


@job(queue="imports", max_attempts=5, timeout=timedelta(minutes=10), backoff=[1, 10, 60], takes_context=True)
def import_records(ctx: JobContext, import_id: int, batch_size: int = 20) -> dict[str, int]:
    """Import the records of an upload, batch by batch, each record once.

    A batch and the checkpoint that says so commit together: an attempt that comes after a crash goes on behind the last
    batch that is in the database. A worker that stalled and wakes up late cannot save its checkpoint any more
    (`StaleToken`), so its batch is rolled back.
    """
    records = Import.objects.get(pk=import_id).records
    total = len(records)
    done = ctx.state["done"] if ctx.state else 0
    if done:
        ctx.logger.info("resumes at %d of %d", done, total)
    while done < total:
        batch = records[done : done + batch_size]
        for record in batch:
            ctx.check()  # Stops here when somebody cancelled the job, or its time is up.
            services.ask_supplier(record["sku"])  # Slow things stay outside of the transaction.
        with transaction.atomic():
            for number, record in enumerate(batch, start=done + 1):
                _import_one(ctx, import_id, number, record)
            ctx.checkpoint({"done": done + len(batch)})
        done += len(batch)
        ctx.progress(done, total, f"{records[done - 1]['title']} was the last one")
    Import.objects.filter(pk=import_id, finished_at=None).update(finished_at=Now())
    ctx.logger.info("all %d records are imported", total)
    return {"records": total}


def _import_one(ctx: JobContext, import_id: int, number: int, record: dict[str, str]) -> None:
    about = {name: record[name] for name in ("title", "author", "year", "price")}
    product, _ = Product.objects.update_or_create(sku=record["sku"], defaults=about)
    inventory.put(product.pk, int(record["quantity"]), source=f"import {import_id}, record {number}")
    ImportedRecord.objects.create(
        batch_id=import_id,
        number=number,
        product=product,
        job_id=ctx.job_id,
        attempt=ctx.attempt,
        fencing_token=ctx.fencing_token,
    )


@job(
    queue="imports",
    priority=-10,
    unique_key=lambda product_id: f"index:{product_id}",
    unique_until="start",
)
def index_product(product_id: int) -> None:
    """Bring the search index up to date with a book. Many changes in a row make one run.

    The key is free again as soon as the run starts: a change that comes while it runs enqueues a run of its own.
    """
    product = Product.objects.get(pk=product_id)
    text = f"{product.title} {product.author} {product.year} {'in stock' if product.stock else ''}"
    Product.objects.filter(pk=product_id).update(search_text=text.casefold())


# --- schedules ------------------------------------------------------------------------------------


@cron("0 6 * * *", timezone="Asia/Ho_Chi_Minh", overlap="skip")
@job(timeout=timedelta(minutes=5))
def stock_report(scheduled_for: datetime) -> dict[str, Any]:
    """What is in stock each morning. Made late, or again, it still says which morning it is for."""
    titles = Product.objects.filter(stock__gt=0)
    return {"for": scheduled_for, "titles": titles.count(), "books": titles.aggregate(n=Sum("stock"))["n"] or 0}


@every(minutes=1, misfire="skip", overlap="skip")
@job(priority=-20, timeout=30, max_attempts=1)
def reconcile() -> None:
    """Compare each account with the entries of its ledger. An hour that was missed needs no sixty checks afterwards."""
    accounts = Account.objects.annotate(booked=Sum("ledgerentry__amount"))
    if wrong := [account.code for account in accounts if account.balance != (account.booked or 0)]:
        raise PermanentFailure(f"these accounts differ from their ledgers: {', '.join(wrong)}")
