"""Names, queues and keys: text that a column can hold."""

from __future__ import annotations


def check_text(value: object, what: str, limit: int, *, without: str = "") -> str:
    """`value`, a str of 1 to `limit` characters; `what` is what the error calls it ("a queue"), `without` what it may not hold.

    Raises TypeError for what is no str, and ValueError for NUL, lone surrogates (text that was decoded from bytes that are not
    UTF-8) and the like, and for another length: no database takes them, and who finds out there cannot say which name it was.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} is a string, not {type(value).__name__}.")
    if not 0 < len(value) <= limit:
        raise ValueError(f"{what} is a string of 1 to {limit} characters, not of {len(value)}: {value!r:.300}.")
    for character in value if not value.isascii() else (c for c in "\0" if c in value):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise ValueError(f"{what} cannot be stored with the character {character!r}: {value!r:.300}.")
    if any(character in value for character in without):
        raise ValueError(f"{what} is a string without {', '.join(map(repr, without))}, not {value!r:.300}.")
    return value
