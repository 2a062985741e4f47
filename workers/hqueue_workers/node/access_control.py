"""Applies the access rules in a process, and follows changes of their record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hqueue import Client, SettingsError
from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.access_record import AccessRecord
from hqueue.metadata.access_rules import AccessRule, AccessRules, Operation
from hqueue.metadata.ports import NEW, Watch
from hqueue.net.audit import Audit
from hqueue.runtime.logs import Log
from hqueue.settings.names import is_among
from hqueue_workers.node.access_settings import RULES, AccessSettings, check_administrators

__all__ = ["AccessControl"]

logger = Log(__name__)

SHOWN_MAX = 20
"""This many rules of a change are in the audit."""


class AccessControl:
    """Decides by the access rules, and follows changes of their record. Thread-safe.

    The last rules that it read apply until it can read others: while ZooKeeper is not available,
    and if the record was deleted or can't be decoded.

    Args:
        record: the record of the rules.
        administrators: the names that may do everything, as in an ACL.
    """

    def __init__(self, record: AccessRecord, administrators: Sequence[str]) -> None:
        self._record = record
        self._administrators = administrators
        self._rules = AccessRules()
        self._audit = Audit()
        self._watch: Watch | None = None
        self._listeners: list[Callable[[], object]] = []

    @classmethod
    def of(
        cls, client: Client, settings: AccessSettings, *, by_tickets: bool = False
    ) -> AccessControl | None:
        """Make it from the settings of a role; None if they use no rules.

        Args:
            client: the connection.
            settings: the role's settings.
            by_tickets: whether callers prove principals without ``tls``, too.

        Raises:
            SettingsError: callers can't prove principals.
        """
        if settings.authorizer != RULES:
            return None
        if not client.settings.tls and not by_tickets:
            raise SettingsError(
                "access rules need principals, which callers can only prove with tls: set tls, or "
                "another authorizer",
                authorizer=settings.authorizer,
            )
        return cls(client.coordination.access_rules, check_administrators(settings.administrators))

    def begin(self) -> None:
        """Read the rules, and follow their changes. Without a record there is no rule.

        Raises:
            HQueueError: the rules can't be read.
        """
        self._rules = self._record.read() or AccessRules()
        self._watch = self._record.watch(self._on_change)

    def close(self) -> None:
        """Stop following the rules. Never raises."""
        if self._watch is not None:
            self._watch.close()

    def on_change(self, listener: Callable[[], object]) -> None:
        """Call a listener after each change of the rules. A thread calls it, which it must not
        block.
        """
        self._listeners.append(listener)

    def allows(
        self,
        principal: str | None,
        operation: Operation,
        queue: str,
        topic: str | None = None,
        name: str | None = None,
        *,
        own: bool = True,
    ) -> bool:
        """Return whether a principal may do something; as `AccessRules.rule_for`."""
        if principal is None:
            return False
        if is_among(self._administrators, principal):
            return True
        queue = queue.removeprefix("default:")  # Rules have each queue by its one name.
        return self._rules.rule_for(principal, operation, queue, topic, name, own=own) is not None

    def _on_change(self, found: AccessRules | UnsupportedFormatError | None) -> None:
        before = self._rules
        if isinstance(found, UnsupportedFormatError):
            logger.error("the access rules can't be read; the last ones still hold: %s", found)
        elif found is None:
            if before.revision != NEW:
                logger.error("the record of the access rules is gone; its last rules still hold")
        else:
            self._rules = found
            if found != before:
                added, removed = set(found) - set(before), set(before) - set(found)
                by = found.changed_by
                self._audit.did(
                    "access",
                    None if by is None else by.name,
                    "",
                    # ZooKeeper does not say who wrote the record.
                    login=None if by is None else f"{by.kind}, as its program says",
                    added=_text(added),
                    removed=_text(removed),
                )
                for listener in self._listeners:
                    listener()


def _text(rules: Iterable[AccessRule]) -> str:
    texts = sorted(
        f"{rule.principal} {','.join(rule.operation_names)} {rule.queue} {rule.topic} "
        f"{rule.name or '-'}"
        for rule in rules
    )
    more = f"; and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return "; ".join(texts[:SHOWN_MAX]) + more
