"""The steps by which the client's decisions call servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from hqueue.runtime.clock import Deadline
from hqueue.runtime.only_reads import OnlyReads
from hqueue.runtime.steps import Wait
from hqueue.settings.addresses import Address

__all__ = ["Ask", "Exchange", "HubMethod", "Watch"]

_NO_ANSWER = "a hub did not answer: the call may be done already, or be done later"


class HubMethod(NamedTuple):
    """A method of the IDL's service, with its arguments."""

    name: str
    arguments: tuple[object, ...] = ()
    messages: Sequence[Any] = ()
    """The messages among the arguments."""
    only_reads: bool = False
    """Whether the method changes nothing, so that none of its errors leaves an outcome unknown."""

    @property
    def no_answer(self) -> str:
        """The error text for a hub that did not answer."""
        return "a hub did not answer" if self.only_reads else _NO_ANSWER

    def outcome(self) -> AbstractContextManager[None]:
        """A block in which errors of a call have the outcome *not applied*, if the method only
        reads.
        """
        return OnlyReads() if self.only_reads else nullcontext()


class Watch(NamedTuple):
    """How long a server may be silent in a call, and what to do then."""

    silence_ms: float
    """How long until the first check. Each further check comes after twice the time."""
    check: Callable[[], Wait]
    """Makes a step that raises an `OSError` if the server doesn't answer at all."""


class Exchange(NamedTuple):
    """A step that makes one call of a server. Its result is the answer."""

    address: Address
    method: HubMethod
    deadline: Deadline
    watch: Watch | None = None

    def do(self, port: Any) -> object:
        """Make the call."""
        return port.exchange(self)


class Ask(NamedTuple):
    """A step that asks a hub for something that it can answer at once. It uses a new connection,
    since kept ones may be full of unanswered calls. Its result is whether the hub answers.
    """

    hub: Address
    bound_ms: float

    def do(self, port: Any) -> object:
        """Ask it."""
        return port.ask(self)
