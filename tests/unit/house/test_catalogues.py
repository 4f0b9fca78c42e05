"""The catalogues hold what the code and the templates say. `python -m scripts.catalogues` brings them up to date."""

from __future__ import annotations

import re
from functools import cache

import polib
import pytest
from django.utils import translation

from django_reliable_jobs.models import JobStatus
from scripts.catalogues import LANGUAGES, Text, catalogue, key, texts

PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]|\{\w*\}|%%")


@cache
def entries(language: str) -> dict[Text, polib.POEntry]:
    return {key(entry): entry for entry in polib.pofile(str(catalogue(language)))}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_string_is_in_the_catalogue_and_nothing_else(language: str) -> None:
    found = texts()
    assert len(found) > 100
    assert set(entries(language)) - set(found) == set(), "no longer in the code"
    assert set(found) - set(entries(language)) == set(), "new in the code"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_string_has_a_translation(language: str) -> None:
    assert [entry.msgid for entry in entries(language).values() if not entry.translated() or entry.fuzzy] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_the_placeholders_of_its_text(language: str) -> None:
    wrong = []
    for text, entry in entries(language).items():
        given = sorted(PLACEHOLDER.findall(text.plural or text.text))
        forms = entry.msgstr_plural.values() if text.plural else [entry.msgstr]
        # The singular may leave the number out: "one job".
        allowed = [given, sorted(PLACEHOLDER.findall(text.text))]
        wrong += [form for form in forms if sorted(PLACEHOLDER.findall(form)) not in allowed]
    assert wrong == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_catalogue_is_up_to_date(language: str) -> None:
    compiled = {key(entry): entry for entry in polib.mofile(str(catalogue(language).with_suffix(".mo")))}
    assert {text: (entry.msgstr, entry.msgstr_plural) for text, entry in compiled.items()} == {
        text: (entry.msgstr, entry.msgstr_plural) for text, entry in entries(language).items()
    }


def test_django_finds_them() -> None:
    with translation.override("vi"):
        assert str(JobStatus.DONE.label) == "hoàn thành"
    with translation.override("en"):
        assert str(JobStatus.DONE.label) == "done"
