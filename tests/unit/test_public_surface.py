"""The public surface: every name that a user can import, and its signature.

A change to it is a decision: look at the difference, and write the file again with
``python -m tests.unit.test_public_surface``.
"""

from __future__ import annotations

import builtins
import enum
import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import hqueue.engine

SURFACE = Path(__file__).parents[1] / "golden" / "public_surface.txt"
PACKAGES = (
    "hqueue", "hqueue.aio", "hqueue.errors", "hqueue.typing", "hqueue.engine", "hqueue_workers",
    "pyspark_hqueue",
)  # fmt: skip
NAMES_MAX = 80
"""The names that `hqueue` has; what most applications don't use is in the modules beside it."""
ROOMS = (*PACKAGES, "hqueue.metadata", "hqueue.metadata.managers")
OURS = {package.partition(".")[0] for package in PACKAGES}


def surface() -> str:
    """All public names, a line each; the methods of classes below them."""
    lines: list[str] = []
    described: dict[int, str] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            item, there = getattr(module, name), f"{package}.{name}"
            if inspect.isclass(item) and id(item) in described:
                lines.append(f"{there} = {described[id(item)]}")
            else:
                lines += _described(there, item)
                described[id(item)] = there
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
    own, annotations = _attributes(item)
    for attribute in sorted(own.keys() | annotations.keys()):
        value = own.get(attribute)
        if attribute.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"    {attribute}: {inspect.signature(value.fget).return_annotation}"  # type: ignore[arg-type]
        elif attribute in annotations:
            yield f"    {attribute}: {_text(annotations[attribute])}"
        else:
            yield f"    {attribute}{_signature(_plain(value))}"


def _attributes(item: type) -> tuple[dict[str, object], dict[str, object]]:
    """What a class and its bases of ours have, and what they say of the types of it."""
    own: dict[str, object] = {}
    annotations: dict[str, object] = {}
    for base in reversed(item.__mro__):
        if _is_ours(base):
            own |= vars(base)
            annotations |= vars(base).get("__annotations__", {})
    return own, annotations


def _is_ours(item: type) -> bool:
    return item.__module__.partition(".")[0] in OURS


def _plain(value: object) -> object:
    return value.__func__ if isinstance(value, classmethod | staticmethod) else value


def _text(annotation: object) -> str:
    """An annotation as it was written."""
    return str(getattr(annotation, "__forward_arg__", annotation))


def _signature(item: object) -> str:
    """Names, types and defaults of what can be called, or of what kind else it is."""
    if not callable(item):
        return f": {type(item).__name__}"
    try:
        text = str(inspect.signature(item))
    except (TypeError, ValueError):
        return ""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _spoken_of(item: object) -> Iterator[tuple[str, object]]:
    """The types of ours in the signatures of a public name, each with where it stands.

    What is made by a method of another class is made by no user: its own arguments don't count.
    """
    callables = [item] if inspect.isfunction(item) else []
    if inspect.isclass(item):
        own, annotations = _attributes(item)
        made = "Made by" in (item.__doc__ or "")
        named = [n for n in own if not n.startswith("_") or (n == "__init__" and not made)]
        callables = [_plain(own[n]) for n in named]
        names = vars(sys.modules[item.__module__])
        for attribute, annotation in annotations.items():
            if not attribute.startswith("_"):
                yield from _named(f"{item.__name__}.{attribute}", annotation, names)
    for called in callables:
        plain = called.fget if isinstance(called, property) else called
        if inspect.isfunction(plain):
            for annotation in plain.__annotations__.values():
                yield from _named(plain.__qualname__, annotation, plain.__globals__)


def _named(
    where: str, annotation: object, names: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    for word in re.findall(r"\w+", _text(annotation)):
        found = names.get(word)
        if isinstance(found, types.UnionType) or (inspect.isclass(found) and _is_ours(found)):
            yield f"{where}: {word}", found


def test_the_public_surface_is_what_was_decided() -> None:
    assert surface() == SURFACE.read_text()


def test_applications_have_a_bounded_number_of_names_to_know() -> None:
    assert len(hqueue.__all__) <= NAMES_MAX


def test_every_type_that_is_taken_or_returned_can_be_imported() -> None:
    public = [
        getattr(importlib.import_module(package), name)
        for package in ROOMS
        for name in importlib.import_module(package).__all__
    ]
    spoken_of = [
        found
        for package in PACKAGES
        for name in importlib.import_module(package).__all__
        for found in _spoken_of(getattr(importlib.import_module(package), name))
    ]
    assert len(spoken_of) > 100
    assert not [where for where, kind in spoken_of if not any(kind is each for each in public)]


def _documented_errors(name: str, item: object) -> Iterator[tuple[str, str]]:
    """The errors that the docstrings of a public name list, each with where it stands."""
    texts = {name: inspect.getdoc(item) or ""}
    if inspect.isclass(item):
        own, _ = _attributes(item)
        texts |= {
            f"{name}.{attribute}": inspect.getdoc(_plain(value)) or ""
            for attribute, value in own.items()
            if not attribute.startswith("_")
        }
    for where, text in texts.items():
        for raised in re.findall(r"^Raises:\n((?:    .*\n?|\n)+)", text, re.MULTILINE):
            for entry in re.findall(r"^    (\S[^:\n]*)", raised, re.MULTILINE):
                for error in re.findall(r"\b[A-Z]\w*(?:Error|Exception)\b", entry):
                    yield f"{where}: {error}", error


def test_every_documented_error_is_in_the_module_of_errors() -> None:
    builtin = {name for name in vars(builtins) if name.endswith("Error")}
    documented = [
        (where, error)
        for room in ROOMS
        for name in importlib.import_module(room).__all__
        for where, error in _documented_errors(
            f"{room}.{name}", getattr(importlib.import_module(room), name)
        )
    ]
    assert len(documented) > 100
    exported = {*importlib.import_module("hqueue.errors").__all__, *builtin}
    assert not [where for where, error in documented if error not in exported]


def test_no_attribute_of_a_client_leads_to_what_stands_behind_it() -> None:
    with hqueue.connect() as client:
        assert {name for name in vars(client) if not name.startswith("_")} == {"settings"}
        assert {name for name in vars(hqueue.engine.Engine(client)) if name[0] != "_"} == set()


if __name__ == "__main__":
    SURFACE.write_text(surface())
