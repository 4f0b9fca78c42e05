"""Slots, and how a handler runs in them."""
