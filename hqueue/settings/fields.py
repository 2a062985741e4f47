"""The fields of a settings class, as the types that they are annotated with."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hqueue.errors import HQueueError, SettingsError
from hqueue.settings.numbers import read_whole

__all__ = ["check_fields", "field_faults", "read_field"]

_SWITCH = {"true": True, "1": True, "false": False, "0": False}


def check_fields(
    settings: Any, bounds: Mapping[str, tuple[int, int | None]], *, empty_texts: bool = True
) -> None:
    """Read and check each field of a frozen dataclass that is a text, a whole number or a switch;
    numbers and switches may be given as texts, as the environment has them. Others stay.

    Args:
        settings: the object, which is being made.
        bounds: the least and the greatest that a number may be; 1 and no greatest if it has none.
        empty_texts: whether a text may be empty.

    Raises:
        SettingsError: a field has a wrong value; ``setting`` names it.
    """
    for fault in field_faults(settings, bounds, empty_texts=empty_texts):
        raise fault


def field_faults(
    settings: Any, bounds: Mapping[str, tuple[int, int | None]], *, empty_texts: bool = True
) -> Iterator[HQueueError]:
    """Like `check_fields`, but yield the error of each wrong field, which has its default then."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        optional = str(field.type).endswith(" | None")
        if optional and value is None:
            continue
        read: Callable[[Any], Any]
        match str(field.type).removesuffix(" | None"):
            case "int":
                low, high = bounds.get(field.name, (1, None))
                read = functools.partial(
                    read_whole, low=low, high=high, error=SettingsError, setting=field.name
                )
            case "bool":
                read = functools.partial(_read_switch, setting=field.name)
            case "str":
                read = functools.partial(_read_text, empty=empty_texts, setting=field.name)
            case _:
                continue
        yield from read_field(settings, field.name, read)


def read_field(settings: Any, name: str, read: Callable[[Any], object]) -> Iterator[HQueueError]:
    """Replace a field of a frozen dataclass by what is read of it. If it is wrong, give it its
    default, and yield the error.

    Args:
        settings: the object, which is being made.
        name: the field.
        read: reads and checks its value.
    """
    try:
        value = read(getattr(settings, name))
    except HQueueError as exc:
        (value,) = (each.default for each in dataclasses.fields(settings) if each.name == name)
        object.__setattr__(settings, name, value)
        yield exc
    else:
        object.__setattr__(settings, name, value)


def _read_text(value: object, *, empty: bool, setting: str) -> str:
    if not isinstance(value, str) or not (value or empty):
        raise SettingsError("this setting must be a string", setting=setting, value=value)
    return value


def _read_switch(value: object, setting: str) -> bool:
    read = _SWITCH.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(read, bool):
        raise SettingsError("this setting must be true or false", setting=setting, value=value)
    return read
