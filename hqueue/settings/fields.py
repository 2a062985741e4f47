"""The fields of a settings class, as the types that they are annotated with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hqueue.errors import SettingsError
from hqueue.settings.numbers import read_whole

__all__ = ["check_fields"]

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
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        optional = str(field.type).endswith(" | None")
        if optional and value is None:
            continue
        match str(field.type).removesuffix(" | None"):
            case "int":
                low, high = bounds.get(field.name, (1, None))
                value = read_whole(value, low, high, error=SettingsError, setting=field.name)
            case "bool":
                value = _read_switch(value, field.name)
            case "str" if not isinstance(value, str) or not (value or empty_texts):
                raise SettingsError(
                    "this setting must be a string", setting=field.name, value=value
                )
        object.__setattr__(settings, field.name, value)


def _read_switch(value: object, setting: str) -> bool:
    read = _SWITCH.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(read, bool):
        raise SettingsError("this setting must be true or false", setting=setting, value=value)
    return read
