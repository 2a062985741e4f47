"""The shell's two ways to write a command, both turned into the arguments of the command line.

The plain one is the command line's own, with a POSIX shell's quotes:

    create q1 --partitions 3 --ttl 1d

The other is that of Alibaba's HQueue toolkit, whose arguments have commas between them:

    create 'q1', 32, 86400, {'hbase.hstore.compaction.min' => '16'}

    line  =  name [ argument { "," argument } ]
    argument  =  quoted | word | "{" [ item "=>" item { "," item "=>" item } ] "}"

Its text comes from web pages, so typographic quotes are quotes too (‘q1′), and a prompt that was
copied along, as ``hqueue(main):013:0>``, is skipped, and so is the program's name. A line is in
this syntax if its first argument has a comma after it or a typographic quote before it, or is a
dictionary.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping

from hqueue.errors import InvalidInputError

__all__ = ["ALIASES", "TOOLKIT", "ToolkitForm", "parse_line"]


@dataclasses.dataclass(frozen=True)
class ToolkitForm:
    """How a command is written in the toolkit syntax.

    Args:
        places: for each argument the option that it stands for; an empty text for an argument
            of the command line. Further arguments stay arguments.
        dictionary: the option that takes a dictionary's items as ``name=value``; without one,
            each item is an option of its own.
        required: how many arguments there must be.
        usage: what is shown as help.
        example: an example in this syntax.
    """

    places: tuple[str, ...]
    required: int
    usage: str
    example: str
    dictionary: str | None = None


ALIASES: Mapping[str, str] = {
    "truncate_queue": "truncate",
    "add_subscriber": "add-subscriber",
    "delete_subscriber": "delete-subscriber",
}
"""The toolkit's names of commands that are called otherwise here."""

TOOLKIT: Mapping[str, ToolkitForm] = {
    "create": ToolkitForm(
        ("", "--partitions", "--ttl"),
        3,
        "create 'queue_name', partition_count, ttl, [configuration dictionary]",
        "create 'q1', 32, 86400, {'hbase.hqueue.partitionsPerRegion' => '4'}",
        "--attribute",
    ),
    "alter": ToolkitForm(
        ("", "--ttl"),
        1,
        "alter 'queue_name', ttl, [configuration dictionary]",
        "alter 'q1', 172800, {'hbase.hqueue.compression' => 'GZ'}",
        "--attribute",
    ),
    "disable": ToolkitForm(("",), 1, "disable 'queue_name'", "disable 'q1'"),
    "enable": ToolkitForm(("",), 1, "enable 'queue_name'", "enable 'q1'"),
    "delete": ToolkitForm(("",), 1, "delete 'queue_name'", "delete 'q1'"),
    "truncate": ToolkitForm(("",), 1, "truncate_queue 'queue_name'", "truncate_queue 'q1'"),
    "describe": ToolkitForm(("",), 1, "describe 'queue_name'", "describe 'q1'"),
    "put": ToolkitForm(
        ("", "--topic"),
        3,
        "put 'queue_name', 'topic', 'value', ['value', ...], [option dictionary]",
        "put 'q1', 'crawler', 'http://example.org/'",
    ),
    "scan": ToolkitForm(
        ("",),
        1,
        "scan 'queue_name', [option dictionary]",
        "scan 'q1', {'start' => '-10m', 'limit' => 5}",
    ),
    "add-subscriber": ToolkitForm(
        ("", ""),
        2,
        "add_subscriber 'queue_name', 'subscriber_name'",
        "add_subscriber 'q1', 'subscriber_1'",
    ),
    "delete-subscriber": ToolkitForm(
        ("", ""),
        2,
        "delete_subscriber 'queue_name', 'subscriber_name'",
        "delete_subscriber 'q1', 'subscriber_1'",
    ),
}

_PROMPT = re.compile(r"\s*hqueue(\([^()]*\)(:\d+)*)?>\s*")
_PROGRAM = re.compile(r"\Ahqueue\s+")
_NAME = re.compile(r"[A-Za-z_][\w-]*")
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s,{}'\"‘’‚‛′“”„‟″]+")
_SINGLE, _DOUBLE = "‘’‚‛′", "“”„‟″"
_TYPOGRAPHIC = _SINGLE + _DOUBLE
_FIRST_ARGUMENT = re.compile(r"""\s+(?:[‘’‚‛′“”„‟″{]|(?:'[^']*'|"[^"]*"|[^\s,'"]+)\s*,)""")


def parse_line(line: str) -> list[str]:
    """The arguments of the command line that a line of the shell stands for; none if it is empty.

    Raises:
        InvalidInputError: the line can't be read; the fact `column` says where.
    """
    prompt = _PROMPT.match(line)
    start = prompt.end() if prompt else 0
    text = _PROGRAM.sub("", line[start:].strip(), count=1)
    if not text or text.startswith("#"):
        return []
    name = _NAME.match(text)
    if name is not None and _FIRST_ARGUMENT.match(text, name.end()):
        return _Toolkit(text, name.end()).arguments(ALIASES.get(name[0], name[0]))
    try:
        arguments = shlex.split(text)
    except ValueError as exc:
        raise InvalidInputError("a quote is not closed", line=text) from exc
    return [ALIASES.get(arguments[0], arguments[0]), *arguments[1:]]


class _Toolkit:
    """The reader of one line in the toolkit syntax."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at

    def arguments(self, command: str) -> list[str]:
        """Read the rest of the line, and say it in the command line's arguments."""
        values: list[str] = []
        items: list[tuple[str, str]] = []
        while True:
            self._skip()
            if self._peek() == "{":
                items += self._dictionary()
            else:
                values.append(self._item("an argument"))
            self._skip()
            if self._at == len(self._text):
                break
            self._expect(",")
        form = TOOLKIT.get(command, ToolkitForm((), 0, "", ""))
        if len(values) < form.required:
            raise InvalidInputError("arguments are missing", usage=form.usage)
        options, positional = [], []
        for index, value in enumerate(values):
            option = form.places[index] if index < len(form.places) else ""
            if option:
                options.append(f"{option}={value}")
            else:
                positional.append(value)
        for key, value in items:
            if form.dictionary:
                options.append(f"{form.dictionary}={key}={value}")
            else:
                options.append(f"--{key.replace('_', '-')}={value}")
        return [command, *options, "--", *positional]

    def _dictionary(self) -> list[tuple[str, str]]:
        items: list[tuple[str, str]] = []
        self._expect("{")
        while self._peek() != "}":
            key = self._item("a name")
            self._expect("=>")
            items.append((key, self._item("a value")))
            if self._peek() != "}":
                self._expect(",")
        self._expect("}")
        return items

    def _item(self, what: str) -> str:
        """A quoted text, or a word."""
        quote = self._peek()
        if quote and quote in "'\"" + _TYPOGRAPHIC:
            closing = quote
            if quote in _TYPOGRAPHIC:
                # Such pages close a quote with whatever looks like one.
                closing = _SINGLE + "'" if quote in _SINGLE else _DOUBLE + '"'
            end = next(
                (i for i in range(self._at + 1, len(self._text)) if self._text[i] in closing), None
            )
            if end is None:
                raise self._error("this quote is not closed")
            value = self._text[self._at + 1 : end]
            self._at = end + 1
            return value
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise self._error(f"{what} is expected here")
        self._at = word.end()
        return word[0]

    def _peek(self) -> str:
        self._skip()
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at

    def _expect(self, token: str) -> None:
        self._skip()
        if not self._text.startswith(token, self._at):
            raise self._error(f"{token} is expected here")
        self._at += len(token)

    def _error(self, text: str) -> InvalidInputError:
        return InvalidInputError(text, line=self._text, column=self._at + 1)
