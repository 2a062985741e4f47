"""The public surface: every name that a user can import, and its signature.

A change to it is a decision: look at the difference, and write the file again with
``python -m tests.unit.test_public_surface``.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

SURFACE = Path(__file__).parents[1] / "golden" / "public_surface.txt"
PACKAGES = ("hqueue", "hqueue_workers", "pyspark_hqueue")


def surface() -> str:
    """All public names, a line each; the methods of classes below them."""
    lines: list[str] = []
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            lines += _described(f"{package}.{name}", getattr(module, name))
    return "\n".join(lines) + "\n"


def _described(name: str, item: object) -> Iterator[str]:
    if not inspect.isclass(item):
        yield f"{name}{_signature(item)}"
        return
    bases = ", ".join(base.__name__ for base in item.__bases__ if base is not object)
    yield f"class {name}({bases}){'' if issubclass(item, enum.Enum) else _signature(item)}"
    if issubclass(item, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in item)
        return
    own: dict[str, object] = {}
    annotations: dict[str, object] = {}
    for base in reversed(item.__mro__):
        if base.__module__.partition(".")[0] in PACKAGES:
            own |= vars(base)
            annotations |= vars(base).get("__annotations__", {})
    for attribute, value in sorted(own.items()):
        if attribute.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"    {attribute}: {inspect.signature(value.fget).return_annotation}"  # type: ignore[arg-type]
        elif attribute in annotations:
            yield f"    {attribute}: {annotations[attribute]}"
        else:
            plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            yield f"    {attribute}{_signature(plain)}"


def _signature(item: object) -> str:
    """Names, types and defaults of what can be called, or of what kind else it is."""
    if not callable(item):
        return f": {type(item).__name__}"
    try:
        text = str(inspect.signature(item))
    except (TypeError, ValueError):
        return ""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def test_the_public_surface_is_what_was_decided() -> None:
    assert surface() == SURFACE.read_text()


if __name__ == "__main__":
    SURFACE.write_text(surface())
