"""Options of commands that are settings: made of a settings class's fields and their docstrings."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Collection
from typing import Annotated, Any

import typer

from hqueue.cli.registering import duration_option

__all__ = ["KIND", "options_of"]

GIVEN = "given"
"""The parameter of a command that takes what was given, by the settings' names."""

KIND = "settings_kind"
"""The attribute of a command that names the settings class of its options."""


def options_of(
    kind: type[Any], names: Collection[str] | None = None, *, without: Collection[str] = ()
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Give a command the options that a settings class describes, in place of its parameter
    ``given``.

    The command is called with a mapping from the settings' names to their values; a setting that
    was not given is None there. A field that is a switch becomes ``--name/--no-name``, one in
    milliseconds a duration, a number a number, everything else a text, which the class reads. The
    help is the first sentence of the field's docstring.

    Args:
        kind: the dataclass.
        names: the fields that become options, in the order of the help; all of them if None, its
            own before those that it inherits.
        without: fields that are not options.

    Raises:
        TypeError: a field is named that the class does not have.
    """
    docs = {name: doc for each in reversed(kind.__mro__[:-1]) for name, doc in _docs(each).items()}
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if names is None:
        own = [name for each in kind.__mro__ for name in vars(each).get("__annotations__", ())]
        names = [name for name in dict.fromkeys(own) if name in fields]
    chosen = [name for name in names if name not in without]
    if not fields.keys() >= {*chosen, *without}:
        raise TypeError(f"{kind.__name__} does not have each of these fields: {names}, {without}")
    options = [_option(fields[name], docs[name], fields) for name in chosen]

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(command)
        def run(*args: Any, **kwargs: Any) -> object:
            given = {name: kwargs.pop(name) for name in chosen}
            return command(*args, **kwargs, **{GIVEN: given})

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters += options if parameter.name == GIVEN else [parameter]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        setattr(run, KIND, kind)
        return run

    return decorate


def _option(field: dataclasses.Field[Any], doc: str, known: Collection[str]) -> inspect.Parameter:
    help_text = _help(doc, known)
    value: Any = {"bool": bool, "int": int, "int | None": int}.get(str(field.type), str)
    milliseconds = value is int and re.search(r"_ms(_|$)", field.name)
    option = duration_option(help_text) if milliseconds else typer.Option(help=help_text)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[value | None, option],
    )


def _help(doc: str, known: Collection[str]) -> str:
    """The first sentence of a docstring, on one line, with options instead of fields' names."""
    sentence = re.split(r"(?<=\.)\s", doc, maxsplit=1)[0]

    def named(quoted: re.Match[str]) -> str:
        name = quoted[1]
        return f"--{name.replace('_', '-')}" if name in known else name

    return " ".join(re.sub(r"`([^`]+)`", named, sentence.replace("``", "")).split())


def _docs(kind: type[Any]) -> dict[str, str]:
    """The docstrings of a class's own fields, which Python keeps in the source alone."""
    module = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    (body,) = (
        each.body
        for each in module.body
        if isinstance(each, ast.ClassDef) and each.name == kind.__name__
    )
    docs: dict[str, str] = {}
    for field, after in itertools.pairwise(body):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(doc))),
            ):
                docs[name] = doc
    return docs
