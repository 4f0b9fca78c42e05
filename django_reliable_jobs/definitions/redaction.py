"""What `@job(redact=[...])` hides: the values of these parameters, wherever people look.

Arguments are hidden by their place. Text that may quote them (an error message, a result, a key) is scrubbed: each
occurrence of a hidden value is replaced, unless the value is so short that it would be found in any text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter
from itertools import islice
from typing import Any

from django_reliable_jobs.definitions.job import JobDefinition

#: What stands in the place of a hidden value.
HIDDEN = "********"
#: Texts of hidden values that are shorter than this are not looked for.
SHORTEST = 4
#: A hidden value may be a large structure: so many of its texts are looked for.
MOST = 1000


def hide(
    definition: JobDefinition | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with `HIDDEN` for what is redacted: for all of them if the definition is not known here."""
    hidden = _hidden(definition, args, kwargs)
    return (
        [HIDDEN if index in hidden else value for index, value in enumerate(args)],
        {name: HIDDEN if name in hidden else value for name, value in kwargs.items()},
    )


def secrets(definition: JobDefinition | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The texts to scrub for these (decoded) arguments, the longest first."""
    if definition is None or not definition.redact:
        return []
    found: set[str] = set()
    for place in _hidden(definition, args, kwargs):
        value = args[place] if isinstance(place, int) else kwargs[place]
        found.update(text for text in islice(_texts(value), MOST) if len(text) >= SHORTEST)
    return sorted(found, key=len, reverse=True)


def scrub(text: str, hidden: Sequence[str]) -> str:
    """`text` without the secrets."""
    for secret in hidden:
        text = text.replace(secret, HIDDEN)
    return text


def _hidden(definition: JobDefinition | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[int | str]:
    """The places that are hidden: positions and names."""
    if definition is None:
        return {*range(len(args)), *kwargs}
    if not definition.redact:
        return set()
    kinds = {parameter.kind: name for name, parameter in definition.signature.parameters.items()}
    names = definition.parameter_names
    rest = kinds.get(Parameter.VAR_POSITIONAL) in definition.redact
    others = kinds.get(Parameter.VAR_KEYWORD) in definition.redact
    return {
        index for index in range(len(args)) if (names[index] in definition.redact if index < len(names) else rest)
    } | {
        name for name in kwargs if name in definition.redact or (others and name not in definition.signature.parameters)
    }


def _texts(value: Any) -> Iterator[str]:
    """As they may stand in a message: `str` and `repr` of the value and of what is in it."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
        yield repr(value)[1:-1]
    elif value is not None and not isinstance(value, bool):
        yield str(value)
        yield repr(value)
