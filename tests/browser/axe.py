"""axe-core's look at a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

SOURCE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
GRAVE = ("serious", "critical")


def violations(page: Page) -> list[str]:
    """One text for each serious or critical violation: the rule, what is wrong, and where."""
    if not page.evaluate("() => Boolean(window.axe)"):
        # Evaluated, since the site's policy keeps out a script tag that comes from elsewhere.
        page.evaluate(SOURCE.read_text())
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations'], iframes: false})")
    return [_readable(violation) for violation in found["violations"] if violation["impact"] in GRAVE]


def _readable(violation: dict[str, Any]) -> str:
    places = [
        f"    {node['html'][:200]}\n        {node['failureSummary'].replace(chr(10), ' ')}"
        for node in violation["nodes"][:5]
    ]
    more = len(violation["nodes"]) - len(places)
    return "\n".join(
        [
            f"{violation['impact']}: {violation['id']}: {violation['help']} ({violation['helpUrl']})",
            *places,
            *([f"    and {more} more"] if more else []),
        ]
    )
