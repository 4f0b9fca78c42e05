"""How people look at the pages: on a desk, on a phone, at night."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

LOOKS: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 900}},
    "390 px": {"viewport": {"width": 390, "height": 844}, "has_touch": True},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
}


def check_look(page: Page, look: str) -> None:
    """Nothing stands out of a narrow screen, and a dark page is dark."""
    page.wait_for_load_state()
    if look == "390 px":
        wide = page.evaluate("document.scrollingElement.scrollWidth")
        assert wide <= 390, f"{page.url} is {wide} px wide: {page.evaluate(WHAT_IS_WIDE)}"
    colours = page.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(int(part) for part in colours.removeprefix("rgb(").removesuffix(")").split(", "))
    assert (bright < 3 * 128) == (look == "dark"), f"{page.url}: the background is {colours}"


WHAT_IS_WIDE = """() => [...document.querySelectorAll("body *")]
    .filter(element => element.getBoundingClientRect().right > 391)
    .slice(-5).map(element => element.outerHTML.slice(0, 150))"""
