"""Playwright's `expect`, with the patience of a busy machine, imported only where a browser is there."""

from __future__ import annotations

import os
from typing import Any

#: Milliseconds, the patience of a busy machine: what passes never waits for it.
PATIENCE = 1000 * int(os.environ.get("BROWSER_PATIENCE", "60"))


def expect(what: Any) -> Any:
    from playwright.sync_api import expect as playwrights

    playwrights.set_options(timeout=PATIENCE)
    return playwrights(what)
