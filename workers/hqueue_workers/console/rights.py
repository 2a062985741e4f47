"""Decides what a caller of the console may see and change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from hqueue.errors import HQueueError, NotAllowedError, Outcome
from hqueue.metadata.access_rules import Operation
from hqueue.net.audit import Audit
from hqueue.settings.names import EVERYBODY, is_among, names_in
from hqueue_workers.console.settings import ConsoleSettings
from hqueue_workers.node.access_control import AccessControl

__all__ = ["Caller", "Rights"]


class Caller(NamedTuple):
    """Who calls the console."""

    host: str
    """The address from which it calls."""
    principal: str | None = None
    """The principal that its certificate or its ticket proves; None if it proves nothing."""


class Rights:
    """Decides by the console's settings and by the access rules. It writes each refusal and each
    change into the audit.

    Args:
        settings: the console's settings.
        secured: whether callers prove who they are.
        access: the access rules; None if they don't count.
    """

    def __init__(
        self, settings: ConsoleSettings, *, secured: bool, access: AccessControl | None = None
    ) -> None:
        settings.check_changes(secured=secured)
        self.allow_changes = settings.allow_changes
        self._changers = names_in(settings.change_principals)
        self._secured = secured
        self._access = access
        self._audit = Audit()

    def sees(self, caller: Caller, queue: str, topic: str | None = None) -> bool:
        """Whether a caller may see a queue.

        Args:
            caller: the caller.
            queue: the queue.
            topic: the topic whose messages the caller wants to see; ``*`` for those of all topics;
                None if it only wants to see the queue itself, for which any topic is enough.
        """
        return self._access is None or self._access.allows(
            caller.principal, Operation.READ, queue, topic
        )

    def check_sees(self, caller: Caller, queue: str, topic: str | None = None) -> None:
        """Check that a caller may see a queue, as `sees`.

        Raises:
            NotAllowedError: the caller may not.
        """
        if not self.sees(caller, queue, topic):
            reason = "no access rule lets you read this: choose a topic that you may read, or have "
            reason += "an operator grant it with hqueue access grant"
            self._refuse(caller, "read", reason, queue=queue, topic=topic)

    def may_change(self, caller: Caller, queue: str, name: str) -> bool:
        """Whether a caller may move a reader of a queue, and redrive or delete its dead letters.

        Args:
            caller: the caller.
            queue: the queue.
            name: the name of the group or the subscriber.
        """
        if not self.allow_changes:
            return False
        if not self._secured:
            return True
        if caller.principal is None or not is_among(self._changers, caller.principal):
            return False
        return self._access is None or self._access.allows(
            caller.principal,
            Operation.CONSUME,
            queue,
            EVERYBODY,
            name,
            own=name == caller.principal,
        )

    def check_change(self, caller: Caller, action: str, queue: str, name: str) -> None:
        """Check that a caller may make a change, as `may_change`.

        Raises:
            NotAllowedError: the caller may not.
        """
        if not self.may_change(caller, queue, name):
            reason = "this console only reads: start it with --allow-changes"
            if self.allow_changes:
                reason = "you may not change this: see change_principals and the access rules"
            self._refuse(caller, action, reason, queue=queue, name=name)

    @contextlib.contextmanager
    def changing(self, caller: Caller, action: str, **on: str | None) -> Iterator[None]:
        """Make a change in this block. The audit says afterwards whether it was done, or may have
        been: it fails, or is abandoned, after its requests were sent.
        """
        outcome = "unknown"
        try:
            yield
            outcome = "done"
        except HQueueError as exc:
            outcome = "" if exc.outcome is Outcome.NOT_APPLIED else outcome
            raise
        finally:
            if outcome:
                self._audit.did(action, caller.principal, caller.host, **on, outcome=outcome)

    def _refuse(self, caller: Caller, action: str, reason: str, **on: str | None) -> None:
        self._audit.refused(action, caller.principal, caller.host, reason, **on)
        facts: dict[str, Any] = {name: fact for name, fact in on.items() if fact}
        raise NotAllowedError(reason, **facts)
