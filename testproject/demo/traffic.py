"""What the shop's customers and staff do all day, faster."""

from __future__ import annotations

import random
import secrets
import threading
import time
from typing import TypeVar

from django.db import OperationalError, connections
from django.db.models import Model
from django.utils import timezone

from testproject.shop import jobs, orders
from testproject.shop.catalogue import read_records
from testproject.shop.models import Customer, Import, Product, Subscription

M = TypeVar("M", bound=Model)

CUSTOMERS = 30
TICK = 0.1
#: How often a second each of these happens, in the mean.
ORDERS, RENEWALS, LOGINS = 6.0, 2.0, 1.0
#: Seconds between two newsletters, and between two imports.
NEWSLETTER_EVERY, IMPORT_EVERY = 5.0, 25.0


def seed() -> None:
    """Customers, and the books of the catalogue: `call` runs an import here and now, without a worker."""
    for number in range(Customer.objects.count(), CUSTOMERS):
        # Mail to the first one fails for good; cards: some are closed, some banks are slow.
        domain = "example.invalid" if number == 0 else "example.com"
        customer = Customer.objects.create(name=f"Customer {number}", email=f"customer{number}@{domain}")
        card = "closed" if number % 10 == 1 else "slow bank" if number % 10 == 2 else "good"
        Subscription.objects.create(customer=customer, fee="9.90", card=card, paid_until=timezone.localdate())
    opening = Import.objects.create(name="opening stock", records=read_records())
    jobs.import_records.call(opening.pk)


class Traffic(threading.Thread):
    """Works until `stop`. What went wrong is in `error`."""

    def __init__(self) -> None:
        super().__init__(name="traffic", daemon=True)
        self.error: Exception | None = None
        self._stop_it = threading.Event()
        self._newsletters = 0
        self._newsletter_at = self._import_at = 0.0

    def run(self) -> None:
        # The first import begins at once, newsletters after a while.
        self._import_at, self._newsletter_at = time.monotonic(), time.monotonic() + 2
        try:
            while not self._stop_it.wait(TICK):
                try:
                    self._tick()
                except OperationalError:  # A restart of the database is no reason to stop shopping.
                    connections.close_all()
                    self._stop_it.wait(1)
        except Exception as error:  # noqa: BLE001 - the demo reports it
            self.error = error
        finally:
            connections.close_all()

    def stop(self) -> None:
        self._stop_it.set()
        if self.ident is not None:  # It has been started.
            self.join()

    def _tick(self) -> None:
        for _ in range(_times(ORDERS)):
            self._order()
        for _ in range(_times(RENEWALS)):
            self._renew()
        for _ in range(_times(LOGINS)):
            jobs.send_login_link.enqueue(_one_of(Customer).pk, secrets.token_urlsafe(16))
        if time.monotonic() >= self._newsletter_at:
            self._newsletter_at += NEWSLETTER_EVERY
            self._newsletters += 1
            orders.advertise(f"Books of the day, no. {self._newsletters}, {timezone.now():%H:%M:%S}")
        if time.monotonic() >= self._import_at:
            self._import_at += IMPORT_EVERY
            orders.upload(f"delivery {timezone.now():%H:%M:%S}", read_records())

    def _order(self) -> None:
        # Three books are in great demand, and run out of stock.
        product = _one_of(Product, 3 if random.random() < 0.3 else None)
        order = orders.place_order(_one_of(Customer), product, random.randint(1, 3), express=random.random() < 0.1)
        if random.random() < 0.03:
            orders.cancel_order(order)

    def _renew(self) -> None:
        due = Subscription.objects.filter(active=True).order_by("paid_until")[:10]
        if subscriptions := list(due):
            jobs.renew_subscription.enqueue(random.choice(subscriptions).pk)


def _one_of(model: type[M], first: int | None = None) -> M:
    """A random row, or one of the first ones."""
    keys = model._default_manager.order_by("pk").values_list("pk", flat=True)[:first]
    return model._default_manager.get(pk=random.choice(keys))


def _times(rate: float) -> int:
    """How often something happens in one tick."""
    whole, rest = divmod(rate * TICK, 1)
    return int(whole) + (random.random() < rest)
