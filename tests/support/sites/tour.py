"""python -m tests.support.sites.tour SITE USER LANGUAGE: follows the links of our pages on an admin site, as JSON.

It is a process of its own, since other admin sites and templates need other settings.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import django

#: Pages of one view: the filters of a list lead to endlessly many.
MOST_PAGES = 6


class Reader(HTMLParser):
    """The links of a page, its headings and the text of its main part."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.text: list[str] = []
        self.inside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and (href := given.get("href")):
            self.links.append(href)
        if tag in ("script", "style"):
            self.inside += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self.inside -= 1

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.text.append(data)


def tour(site: str, user: str, language: str) -> dict[str, Any]:
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client
    from django.urls import resolve

    client = Client(raise_request_exception=False)
    client.force_login(User.objects.get(username=user))
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = language
    root = f"/{site}/"
    ours = f"{root}django_reliable_jobs/"
    todo, seen, strangers = [root, ours], {}, set()
    views: Counter[str] = Counter()
    while todo:
        address = todo.pop(0)
        view = resolve(urlsplit(address).path).view_name
        if address in seen or views[view] == MOST_PAGES:
            continue
        views[view] += 1
        answer = client.get(address)
        reader = Reader()
        body = answer.content.decode()
        if "html" in answer.get("Content-Type", ""):
            reader.feed(body)
        seen[address] = {
            "view": view,
            "status": answer.status_code,
            "text": " ".join(" ".join(reader.text).split()),
        }
        for link in reader.links:
            found = urlsplit(urljoin(address, link))
            target = found.path + (f"?{found.query}" if found.query else "")
            if target.startswith(ours):
                todo.append(target)
            elif "django_reliable_jobs" in found.path:
                strangers.add(f"{address} -> {target}")
    return {"pages": seen, "strangers": sorted(strangers)}


def main() -> None:
    django.setup()
    json.dump(tour(*sys.argv[1:]), sys.stdout)


if __name__ == "__main__":
    main()
