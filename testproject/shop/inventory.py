"""The stock counters. They are changed where they lie: `stock = stock - 3` in SQL, never read, computed and saved."""

from __future__ import annotations

from django.db.models import F

from testproject.shop.models import Product, StockMove


def take(product_id: int, quantity: int, source: str) -> bool:
    """Take books from stock; False, and nothing taken, where there are not enough. Call it in a transaction."""
    # The condition stands in the UPDATE: between a SELECT and an UPDATE somebody else could take the last one.
    changed = Product.objects.filter(pk=product_id, stock__gte=quantity).update(stock=F("stock") - quantity)
    if changed != 1:
        return False
    StockMove.objects.create(product_id=product_id, quantity=-quantity, source=source)
    return True


def put(product_id: int, quantity: int, source: str) -> None:
    """Put books into stock. Call it in a transaction."""
    Product.objects.filter(pk=product_id).update(stock=F("stock") + quantity)
    StockMove.objects.create(product_id=product_id, quantity=quantity, source=source)
