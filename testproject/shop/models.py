"""What a small bookshop keeps. Its jobs (`jobs.py`) change these rows; nothing here knows of jobs."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class Customer(models.Model):
    name = models.CharField(max_length=100)
    email = models.EmailField()

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    """A book. `stock` is changed by arithmetic in SQL only (see `inventory.py`), so that nobody writes over anybody."""

    sku = models.CharField(max_length=20, unique=True)
    title = models.CharField(max_length=200)
    author = models.CharField(max_length=100)
    year = models.IntegerField()
    price = models.DecimalField(max_digits=8, decimal_places=2)
    stock = models.IntegerField(default=0)
    search_text = models.TextField(blank=True, default="")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(stock__gte=0), name="shop_stock_is_not_negative")]

    def __str__(self) -> str:
        return self.title


class StockMove(models.Model):
    """Why a stock counter changed. `source` names the cause; a cause that is there twice was worked through twice."""

    product = models.ForeignKey(Product, on_delete=models.CASCADE)
    quantity = models.IntegerField()
    source = models.CharField(max_length=50)
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.quantity:+d} ({self.source})"


class Order(models.Model):
    class Status(models.TextChoices):
        PLACED = "placed"
        BACKORDERED = "backordered"
        RESERVED = "reserved"
        SHIPPED = "shipped"
        CANCELLED = "cancelled"

    #: Not taken from stock yet; what may still be cancelled.
    WAITING = (Status.PLACED, Status.BACKORDERED)

    customer = models.ForeignKey(Customer, on_delete=models.CASCADE)
    product = models.ForeignKey(Product, on_delete=models.CASCADE)
    quantity = models.PositiveIntegerField(default=1)
    status = models.CharField(max_length=20, choices=Status.choices, default=Status.PLACED)
    carrier = models.CharField(max_length=30, blank=True, default="")
    placed_at = models.DateTimeField(auto_now_add=True)
    #: The job that reserves the stock, for whoever wants to cancel it.
    reservation_job = models.BigIntegerField(null=True, blank=True)

    def __str__(self) -> str:
        return f"order {self.pk}"


class Invoice(models.Model):
    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    total = models.DecimalField(max_digits=10, decimal_places=2)
    booked_at = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"invoice {self.pk}"


class Account(models.Model):
    code = models.CharField(max_length=20, unique=True)
    balance = models.DecimalField(max_digits=14, decimal_places=2, default=0)

    def __str__(self) -> str:
        return self.code


class LedgerEntry(models.Model):
    """One booking. No constraint keeps an invoice from being booked twice: that is the atomic job's doing."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE)
    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "ledger entries"

    def __str__(self) -> str:
        return f"{self.amount} for invoice {self.invoice_id}"


class Subscription(models.Model):
    """The book of the month: `fee` is charged to `card` each time that `paid_until` has come."""

    customer = models.ForeignKey(Customer, on_delete=models.CASCADE)
    fee = models.DecimalField(max_digits=8, decimal_places=2)
    card = models.CharField(max_length=30)
    paid_until = models.DateField()
    active = models.BooleanField(default=True)

    def __str__(self) -> str:
        return f"subscription {self.pk}"


class Import(models.Model):
    """A file of records that somebody uploaded, with what has become of it.

    The records are kept here and not in a file: the worker that imports them may be on another host.
    """

    name = models.CharField(max_length=100)
    records = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class ImportedRecord(models.Model):
    """One record that was imported, and by which attempt of which job. Nothing but the checkpoint keeps it to once."""

    batch = models.ForeignKey(Import, on_delete=models.CASCADE, related_name="imported")
    number = models.PositiveIntegerField()
    product = models.ForeignKey(Product, on_delete=models.CASCADE)
    job_id = models.BigIntegerField()
    attempt = models.IntegerField()
    fencing_token = models.BigIntegerField()

    class Meta:
        ordering = ["batch", "number"]

    def __str__(self) -> str:
        return f"record {self.number} of {self.batch_id}"


class SentMail(models.Model):
    """What the mail provider has accepted (a stand-in: see `services.py`)."""

    key = models.CharField(max_length=255, unique=True)
    to = models.EmailField()
    subject = models.CharField(max_length=200)
    #: How often the provider was asked to send it; it was sent once.
    requests = models.IntegerField(default=1)
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.subject


class Charge(models.Model):
    """What the payment gateway has charged (a stand-in, too)."""

    key = models.CharField(max_length=255, unique=True)
    card = models.CharField(max_length=30)
    amount = models.DecimalField(max_digits=8, decimal_places=2)
    settled = models.BooleanField(default=False)
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.amount} from {self.card}"
