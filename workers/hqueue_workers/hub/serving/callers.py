"""Who calls a hub, by which name, and what the audit has of that."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeVar

from hqueue.metadata import check_name
from hqueue.net.audit import Audit
from hqueue.rpc.server import calling_host, calling_principal
from hqueue.rpc.services import load
from hqueue_workers.hub.serving.answers import text_of

__all__ = ["Named", "audited", "calling_by"]

TEXT_LENGTH_MAX = 200

_Method = TypeVar("_Method", bound=Callable[..., Future[Any]])


class Named(NamedTuple):
    """Who calls, and by which name of a publisher or a subscriber."""

    principal: str | None
    """Who it has proven to be; None without security."""
    name: str

    @property
    def caller(self) -> str:
        """Whom the authorizer is asked about: the principal, or the name if none is proven."""
        return self.principal or self.name


class Audited(Protocol):
    """What answers calls that the audit knows."""

    audit: Audit


def calling_by(given: Any, option: str) -> Named:
    """Return the caller whose call is answered here.

    Raises:
        InvalidInputError: the call gives no name.
    """
    return Named(calling_principal(), check_name(text_of(given, option)))


def audited(action: str, *, administers: bool = False) -> Callable[[_Method], _Method]:
    """Write it into the audit when a method of the IDL is refused, and when it was done if only
    administrators do it.

    Args:
        action: what the audit calls it.
        administers: whether only administrators do it.
    """

    def wrap(call: _Method) -> _Method:
        @functools.wraps(call)
        def begun(self: Audited, queue: Any, name: Any, topic: Any, *others: Any) -> Future[Any]:
            who, host = calling_principal(), calling_host()

            def note(error: BaseException | None) -> None:
                idl = load("hub")
                if error is None and not administers:
                    return
                on: dict[str, Any] = {
                    "queue": _shown(queue),
                    "topic": _shown(topic),
                    "name": _shown(name),
                }
                if isinstance(error, idl.TNotAllowed):
                    self.audit.refused(action, who, host, str(error.message), **on)
                elif administers and not isinstance(error, (idl.TRedirect, idl.TIllegalArgument)):
                    self.audit.did(action, who, host, **on, outcome=_outcome_of(error))

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
    """Write a text of a call for people."""
    if isinstance(given, bytes):
        given = given.decode(errors="replace")
    return str(given)[:TEXT_LENGTH_MAX]
