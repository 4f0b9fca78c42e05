"""What to say of a value that a payload cannot hold: where it is, and what to pass instead."""

from __future__ import annotations

import dataclasses

from django_reliable_jobs.errors import PayloadError

ACCEPTED = "str, int, float, bool, None, list, dict, datetime, date, time, timedelta, Decimal, UUID"

_PK = "pass its .pk and load it in the handler, which then sees the current row"

#: Package and name of a class -> what to pass instead of it or of a subclass. The first that is in the value's MRO is
#: taken, so that an IntEnum is told about `.value` and not about `int(value)`. By name: nothing here needs importing.
_HINTS = {
    "enum.Enum": "pass its .value",
    "django.Model": _PK,
    "django.QuerySet": "pass a list of primary keys: list(queryset.values_list('pk', flat=True))",
    "django.BaseManager": "pass a list of primary keys",
    "django.Promise": "pass str(value), in the language that the reader is to see",
    "django.LazyObject": "pass the .pk (or another plain value) of the object that it stands for",
    "pathlib.PurePath": "pass str(value)",
    "builtins.tuple": "pass list(value)",
    "builtins.set": "pass a list: sorted(value)",
    "builtins.frozenset": "pass a list: sorted(value)",
    "builtins.bytes": "pass text: value.decode(), or base64.b64encode(value).decode()",
    "builtins.bytearray": "pass text: value.decode(), or base64.b64encode(value).decode()",
    "builtins.memoryview": "pass text: base64.b64encode(value).decode()",
    "builtins.dict": "pass dict(value)",
    "builtins.list": "pass list(value)",
    "builtins.str": "pass plain text: value + ''",
    "builtins.int": "pass int(value)",
    "builtins.float": "pass float(value)",
    "datetime.datetime": "pass a plain datetime",
    "datetime.date": "pass a plain date",
    "decimal.Decimal": "pass a plain Decimal",
    "uuid.UUID": "pass a plain UUID: uuid.UUID(int=value.int)",
    "fractions.Fraction": "pass str(value), or [value.numerator, value.denominator]",
    "builtins.type": "pass its dotted name",
    "builtins.function": "pass plain values, and choose the function in the handler",
    "_io._IOBase": "store the file and pass its name",
    "django.FileProxyMixin": "store the file and pass its name",
}


class Refused(Exception):
    """Raised inside the encoder; each level on the way out adds its step of the path: a good payload pays nothing."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []

    def error(self, where: str) -> PayloadError:
        """The error for the caller; `where` names the argument (or result, or checkpoint) where the path starts."""
        steps = self.path[::-1]
        if len(steps) > 12:
            steps[6:-6] = ["..."]
        return PayloadError(f"{where}{''.join(steps)}: {self.problem}")


def refused_type(kind: type) -> Refused:
    """The refusal of a value of class `kind`. Never touches the value: its own methods may raise, or query."""
    names = [f"{str(base.__module__).partition('.')[0]}.{base.__name__}" for base in kind.__mro__]
    known = next((hint for name, hint in _HINTS.items() if name in names), "")
    if names[0].startswith("numpy."):
        hint = "pass value.tolist()" if kind.__name__ == "ndarray" else "pass value.item()"
    elif "builtins.tuple" in names and hasattr(kind, "_fields"):
        hint = "pass value._asdict(), or list(value)"
    elif dataclasses.is_dataclass(kind):
        hint = "pass dataclasses.asdict(value), or the fields that the handler needs"
    elif not known and hasattr(kind, "__iter__"):
        hint = "pass list(value)"
    else:
        hint = known or f"pass one of: {ACCEPTED}"
    shown = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return Refused(f"a value of type {shown} would not come back as it went in; {hint}")


def refused_key(key: object) -> Refused:
    """The refusal of a dict key that is not exactly a str."""
    return Refused(
        f"the key {shown_key(key)} is not a plain str (JSON has no other keys); pass str keys, or a list of pairs"
    )


def shown_key(key: object) -> str:
    """The key as the message shows it: short, and without calling a method of an unknown class."""
    kind = type(key)
    if kind is int and isinstance(key, int) and key.bit_length() > 64:
        return "(an int)"
    text = repr(key) if kind in (str, int, float, bool, type(None)) else f"(a {kind.__name__})"
    return text if len(text) <= 60 else f"{text[:50]}...{text[-1]}"
