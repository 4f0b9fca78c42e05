"""Stand-ins for the services outside: a mail provider, a payment gateway, carriers, the supplier.

They are slow and sometimes fail, as the real ones do, when the environment asks for it (the demo does):

SHOP_LATENCY    seconds that a call takes in the mean (default 0)
SHOP_TROUBLE    the share of calls that fail (default 0)
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from decimal import Decimal

from django.db.models import F

from testproject.shop.models import Charge, SentMail


class ProviderDown(Exception):
    """The service did not answer; it may next time."""


class BadAddress(Exception):
    """There is no such mailbox, and there will be none."""


class CardClosed(Exception):
    """The card will not be charged again, however often we ask."""


class GatewayBusy(Exception):
    """The gateway says when to come again."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"busy, come again in {retry_after:g} s")
        self.retry_after = retry_after


def send_mail(key: str, to: str, subject: str) -> None:
    """As at real providers, a second request with the same key sends nothing: that makes it safe to try again."""
    time.sleep(_latency())
    if _in_trouble():
        raise ProviderDown("421 mail.example.com: try again later")
    if to.endswith(".invalid"):
        raise BadAddress(f"550 {to}: no such mailbox")
    mail, sent = SentMail.objects.get_or_create(key=key, defaults={"to": to, "subject": subject})
    if not sent:
        SentMail.objects.filter(pk=mail.pk).update(requests=F("requests") + 1)


def charge(key: str, card: str, amount: Decimal) -> bool:
    """Charge the card once for each key. False: the bank has not answered yet, ask again with the same key."""
    time.sleep(_latency())
    if _in_trouble():
        raise GatewayBusy(retry_after=1)
    if card == "closed":
        raise CardClosed("the card was closed by its owner")
    answered = card != "slow bank"
    found, new = Charge.objects.get_or_create(key=key, defaults={"card": card, "amount": amount, "settled": answered})
    if not new:
        Charge.objects.filter(pk=found.pk).update(settled=True)
    return answered or not new


def ask_supplier(sku: str) -> None:
    """Whether a record's book is one that the supplier sells; a quick service."""
    time.sleep(_latency() / 5)


async def quote(carrier: str, quantity: int) -> Decimal:
    """What the carrier asks for that many books."""
    await asyncio.sleep(_latency())
    base = {"Snail": "2.90", "Courier": "4.50", "Drone": "9.90"}[carrier]
    return Decimal(base) + Decimal("0.80") * (quantity - 1)


def _latency() -> float:
    return float(os.environ.get("SHOP_LATENCY", "0")) * random.uniform(0.5, 1.5)


def _in_trouble() -> bool:
    return random.random() < float(os.environ.get("SHOP_TROUBLE", "0"))
