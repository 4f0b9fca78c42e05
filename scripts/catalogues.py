"""python -m scripts.catalogues: brings the catalogues up to date with the package's strings, and compiles them.

It needs no GNU gettext. New strings come without a translation; a test says which ones lack it. English is its own
translation, so that its catalogue is complete by itself.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polib
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "django_reliable_jobs"
LANGUAGES = {"en": "nplurals=2; plural=(n != 1);", "vi": "nplurals=1; plural=0;"}

#: Function -> which of its arguments are (context, text, plural).
FUNCTIONS: dict[str, tuple[int | None, int, int | None]] = {
    "_": (None, 0, None),
    "gettext": (None, 0, None),
    "gettext_noop": (None, 0, None),
    "ngettext": (None, 0, 1),
    "pgettext": (0, 1, None),
    "npgettext": (0, 1, 2),
}
FUNCTIONS |= {f"{name}_lazy": arguments for name, arguments in FUNCTIONS.items() if name != "_"}
CALL = re.compile(rf"(?<![\w.])(?:{'|'.join(FUNCTIONS)})\(")


class Text(NamedTuple):
    """One string that people see. `plural` is empty where there is one form only."""

    context: str | None
    text: str
    plural: str


class Unreadable(Exception):
    """A call whose text is no literal: nothing could translate it."""


def texts() -> dict[Text, list[str]]:
    """Every string of the package's code and templates, with the files that it stands in."""
    found: dict[Text, list[str]] = {}
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("templates/**/*.html")]):
        source = path.read_text()
        if "migrations" in path.parts:
            continue
        name = path.relative_to(ROOT).as_posix()
        for text in dict.fromkeys(_of_code(source, name) if path.suffix == ".py" else _of_template(source, name)):
            found.setdefault(text, []).append(name)
    # gettext knows a text once: one that is also a singular somewhere is looked up there.
    for text in [text for text in found if text.plural]:
        found[text] = sorted({*found[text], *found.pop(text._replace(plural=""), [])})
    return found


def _of_code(source: str, name: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield from _of_call(node, name)


def _of_template(source: str, name: str) -> Iterator[Text]:
    """Django turns it into calls, with the rest blanked out."""
    code = templatize(source)
    for begin in CALL.finditer(code):
        for end in re.finditer(r"\)", code[begin.end() :]):
            try:
                call = ast.parse(code[begin.start() : begin.end() + end.end()], mode="eval").body
            except SyntaxError:
                continue  # that bracket stands inside of the text
            yield from _of_call(call, name)
            break


def _of_call(call: ast.AST, name: str) -> Iterator[Text]:
    if not isinstance(call, ast.Call):
        return
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if function not in FUNCTIONS:
        return
    values = [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args]
    context, text, plural = (None if place is None else values[place] for place in FUNCTIONS[function])
    if not isinstance(text, str):
        raise Unreadable(f"{name}:{call.lineno}: {ast.unparse(call)[:100]}: its text is no literal")
    yield Text(context, text, plural or "")


def catalogue(language: str) -> Path:
    return PACKAGE / "locale" / language / "LC_MESSAGES" / "django.po"


def update(language: str, plural_forms: str, found: dict[Text, list[str]]) -> list[str]:
    """Rewrite a language's catalogue and its compiled form. Returns what lacks a translation."""
    path = catalogue(language)
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {key(entry): entry for entry in polib.pofile(str(path))} if path.exists() else {}
    made = polib.POFile(wrapwidth=100)
    made.metadata = {
        "Project-Id-Version": "django-reliable-jobs",
        "Language": language,
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
        "Plural-Forms": plural_forms,
    }
    for text, files in sorted(found.items(), key=lambda item: (item[1], item[0].text)):
        old = known.get(text)
        entry = polib.POEntry(msgctxt=text.context, msgid=text.text, occurrences=[(name, "") for name in files])
        if text.plural:
            entry.msgid_plural = text.plural
            english = {0: text.text, 1: text.plural}
            empty = dict.fromkeys(range(1 if language == "vi" else 2), "")
            entry.msgstr_plural = english if language == "en" else dict(old.msgstr_plural) if old else empty
        else:
            entry.msgstr = text.text if language == "en" else old.msgstr if old else ""
        if "%(" in text.text or re.search(r"%[sd]", text.text):
            entry.flags.append("python-format")
        made.append(entry)
    made.save(str(path))
    made.save_as_mofile(str(path.with_suffix(".mo")))
    return [entry.msgid for entry in made.untranslated_entries()]


def key(entry: polib.POEntry) -> Text:
    return Text(entry.msgctxt, entry.msgid, entry.msgid_plural or "")


def main() -> int:
    found = texts()
    missing = {language: update(language, forms, found) for language, forms in LANGUAGES.items()}
    for language, untranslated in missing.items():
        print(f"{language}: {len(found)} strings, {len(untranslated)} without a translation")
        for text in untranslated:
            print(f"    {text!r}")
    return 1 if any(missing.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
