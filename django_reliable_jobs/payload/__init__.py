"""Payloads: JSON that comes back as it went in."""

from django_reliable_jobs.payload.encoding import (
    JSONB_LIMIT,
    MAX_DEPTH,
    as_call,
    decode,
    dumps,
    dumps_call,
    loads,
    loads_call,
)

__all__ = ["JSONB_LIMIT", "MAX_DEPTH", "as_call", "decode", "dumps", "dumps_call", "loads", "loads_call"]
