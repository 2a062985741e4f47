"""What can stand at the cursor in the interactive shell."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from hqueue.cli.session import Session
from hqueue.cli.shell.syntax import ALIASES
from hqueue.errors import HQueueError
from hqueue.settings.attributes import ATTRIBUTES

__all__ = ["ShellCompleter"]

NAMES_KEPT_S = 5.0
WAIT_MS_MAX = 2_000

_WORD = re.compile(r"[^\s,{}]*\Z")
_QUOTES = "'\"‘’′"
_WITHOUT_QUEUE = {"create", "list", "help", "shell", "demo", "local"}


class ShellCompleter(Completer):
    """Completes commands, their options, queue names, and the attributes of a new queue.

    Args:
        command: the root of the application.
        session: whose settings are used to ask for the queues' names.
    """

    def __init__(self, command: Any, session: Session) -> None:
        self._command = command
        self._session = session
        self._names: list[str] = []
        self._names_until_s = 0.0

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterator[Completion]:
        """The completions of the word before the cursor."""
        before = document.text_before_cursor
        match = _WORD.search(before)
        word = match[0] if match else ""
        typed = before[: len(before) - len(word)].split()
        if not typed:
            names = (n for n, c in self._command.commands.items() if not c.hidden)
            yield from _fitting(word, [*names, *ALIASES, "exit"])
            return
        command = self._command.commands.get(ALIASES.get(typed[0], typed[0]))
        if command is None and typed[0] != "help":
            return
        yield from self._arguments(typed, word, before, command)

    def _arguments(
        self, typed: list[str], word: str, before: str, command: Any
    ) -> Iterator[Completion]:
        name, subcommands = typed[0], getattr(command, "commands", {})
        if name == "help" and len(typed) == 1:
            yield from _fitting(word, self._command.commands)
        elif subcommands and len(typed) == 1:
            yield from _fitting(word, subcommands)
        elif word.startswith("-"):
            command = subcommands.get(typed[1]) if subcommands else command
            options = [o for p in getattr(command, "params", ()) for o in p.opts]
            yield from _fitting(word, [o for o in options if o.startswith("--")])
        elif "{" in before:
            quote = word[:1] if word[:1] in _QUOTES else ""
            names = [a.toolkit_name for a in ATTRIBUTES.values()]
            yield from _fitting(word, [f"{quote}{n}{quote}" for n in names])
        elif len(typed) == 1 and name not in _WITHOUT_QUEUE:
            quote = word[:1] if word[:1] and word[:1] in _QUOTES else ""
            yield from _fitting(word, [f"{quote}{n}{quote}" for n in self._queue_names()])

    def _queue_names(self) -> list[str]:
        """The queues' names, asked for now and then; none if HBase does not answer soon."""
        if time.monotonic() >= self._names_until_s:
            from hqueue.connecting import connect  # noqa: PLC0415  (the session's waits too long)

            soon = {
                f"{what}_timeout_ms": WAIT_MS_MAX for what in ("connect", "request", "operation")
            }
            try:
                with connect(**{**self._session.given, **soon}) as client:
                    self._names = [queue.name for queue in client.list_queues()]
            except HQueueError:
                self._names = []
            self._names_until_s = time.monotonic() + NAMES_KEPT_S
        return self._names


def _fitting(word: str, candidates: Iterable[str]) -> Iterator[Completion]:
    for candidate in sorted(candidates):
        if candidate.startswith(word):
            yield Completion(candidate, start_position=-len(word))
