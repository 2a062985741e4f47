"""Who calls a hub, by which name, and what the audit has of that."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from hqueue.errors import NotAllowedError
from hqueue.metadata import check_name
from hqueue.net.audit import Audit
from hqueue.rpc.server import calling_host, calling_principal
from hqueue.rpc.services import load
from hqueue_workers.hub.authorizer import NameRules
from hqueue_workers.hub.serving.answers import text_of

__all__ = ["Callers", "Named", "audited"]

TEXT_LENGTH_MAX = 200

_audit = Audit()
_Method = TypeVar("_Method", bound=Callable[..., Future[Any]])


class Named(NamedTuple):
    """Who calls."""

    caller: str
    """Whom the authorizer is asked about: the principal, or the name if nobody has proven one."""
    name: str
    """By which name."""


class Callers:
    """Finds out who calls, where a call is answered.

    Args:
        rules: whose names are.
    """

    def __init__(self, rules: NameRules) -> None:
        self._rules = rules

    def caller(self, given: Any, option: str) -> str:
        """The principal; without security, the name that a call gives.

        Raises:
            InvalidInputError: that is not a name.
        """
        name = check_name(text_of(given, option))
        return calling_principal() or name

    def named(self, given: Any, option: str) -> Named:
        """Who calls, by a name that keeps something for it: sequence numbers, or a subscription.

        Raises:
            InvalidInputError: that is not a name.
            NotAllowedError: the name is not the principal's.
        """
        name = check_name(text_of(given, option))
        principal = calling_principal()
        if principal is None:
            return Named(name, name)
        if not self._rules.allows(principal, name):
            raise NotAllowedError(
                f"the {option}'s name is not one of this principal: use the principal's own, or "
                "see the hub's setting names",
                name=name,
                principal=principal,
            )
        return Named(principal, name)


def audited(action: str, *, administers: bool = False) -> Callable[[_Method], _Method]:
    """Write it into the audit when a method of the IDL is refused, and when it was done if only
    administrators do it.

    Args:
        action: what the audit calls it.
        administers: whether only administrators do it.
    """

    def wrap(call: _Method) -> _Method:
        @functools.wraps(call)
        def begun(self: Any, queue: Any, name: Any, topic: Any, *others: Any) -> Future[Any]:
            who, host = calling_principal(), calling_host()

            def note(error: BaseException | None) -> None:
                idl = load("hub")
                if error is None and not administers:
                    return
                on = {"queue": _shown(queue), "topic": _shown(topic), "name": _shown(name)}
                if isinstance(error, idl.TNotAllowed):
                    _audit.refused(action, who, host, str(error.message), **on)
                elif administers and not isinstance(error, (idl.TRedirect, idl.TIllegalArgument)):
                    _audit.did(action, who, host, **on, outcome=_outcome_of(error))

            try:
                done = call(self, queue, name, topic, *others)
            except BaseException as exc:  # It is raised on.
                note(exc)
                raise
            done.add_done_callback(
                lambda ended: None if ended.cancelled() else note(ended.exception())
            )
            return done

        return begun  # type: ignore[return-value]

    return wrap


def _outcome_of(error: BaseException | None) -> str:
    if error is None:
        return "done"
    idl = load("hub")
    not_applied = getattr(error, "outcome", None) == idl.TOutcome.NOT_APPLIED
    return "not applied" if not_applied or isinstance(error, idl.TBusy) else "unknown"


def _shown(given: Any) -> str:
    """A text of a call, for people."""
    if isinstance(given, bytes):
        given = given.decode(errors="replace")
    return str(given)[:TEXT_LENGTH_MAX]
