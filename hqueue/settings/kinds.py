"""Arguments of the types that they must have: flags, lists, callbacks, and objects of the library's
own.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from hqueue.errors import InvalidInputError
from hqueue.settings.numbers import check_number

__all__ = [
    "check_callback",
    "check_flag",
    "check_kind",
    "check_mapping",
    "check_timeout_s",
    "is_async",
    "listed",
]

Kind = TypeVar("Kind")
Item = TypeVar("Item")


def check_kind(value: object, kind: type[Kind] | tuple[type[Any], ...], option: str) -> Any:
    """An argument that is of a type, or of one of several.

    Raises:
        InvalidInputError: it is of another.
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        raise InvalidInputError(
            "an argument has the wrong type",
            option=option,
            needed=" or ".join(each.__name__ for each in kinds),
            found=type(value).__name__,
        )
    return value


def check_flag(value: object, option: str) -> bool:
    """An argument that is True or False.

    Raises:
        InvalidInputError: it is neither.
    """
    return bool(check_kind(value, bool, option))


def check_callback(
    callback: object, option: str, *, awaited: bool = False, needed: bool = False
) -> None:
    """Check an argument that the library calls later; None stands for no callback.

    Args:
        callback: the argument.
        option: its name.
        awaited: whether what it returns is awaited.
        needed: whether there must be one.

    Raises:
        InvalidInputError: it can't be called; or it is a coroutine function, which nothing awaits.
    """
    if callback is None and not needed:
        return
    if not callable(callback):
        raise InvalidInputError(
            "a callback must be a function", option=option, found=type(callback).__name__
        )
    if is_async(callback) and not awaited:
        raise InvalidInputError(
            "a callback is called and not awaited: give a plain function instead of a coroutine "
            "function",
            option=option,
        )


def is_async(function: object) -> bool:
    """Whether a call of a function, or of an object that can be called, must be awaited, or
    iterated over with ``async for``.
    """
    call = getattr(function, "__call__", None)  # noqa: B004  (whether it is async, not whether it is)
    return _is_async_function(function) or _is_async_function(call)


def _is_async_function(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def check_timeout_s(timeout_s: object) -> float | None:
    """How long a call may wait, in seconds; None for as long as it takes.

    Raises:
        InvalidInputError: it is not a number, below 0, or more than can be waited for.
    """
    if timeout_s is None:
        return None
    return check_number(timeout_s, 0, threading.TIMEOUT_MAX, option="timeout_s")


def listed(values: Iterable[Item], option: str) -> list[Item]:
    """What an argument that stands for several things has, in a list.

    Raises:
        InvalidInputError: it is one text, or nothing that can be gone through.
    """
    if isinstance(values, (str, bytes, bytearray, memoryview)) or not isinstance(values, Iterable):
        raise InvalidInputError(
            "an argument must be a sequence",
            option=option,
            found=type(values).__name__,
        )
    return list(values)


def check_mapping(values: Mapping[Any, Item], option: str) -> Mapping[Any, Item]:
    """An argument that is a mapping.

    Raises:
        InvalidInputError: the value has another type.
    """
    return check_kind(values, Mapping, option)  # type: ignore[no-any-return]
