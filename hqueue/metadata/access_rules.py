"""Decides by access rules which principals may do what, on which queues and topics, and under which
names.

Rules only allow: what no rule allows is refused, and their order means nothing.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hqueue.errors import InvalidInputError
from hqueue.message import topic_bytes
from hqueue.metadata.ports import NEW, Version
from hqueue.metadata.records import check_name
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.names import EVERYBODY, is_among

__all__ = ["RULES_MAX", "AccessRule", "AccessRules", "Login", "Operation"]

RULES_MAX = 4_096
DECISIONS_KEPT_MAX = 16_384
"""Of one version of the rules: a process decides the same for call after call."""


class Operation(enum.Enum):
    """What a principal does. The values are those of the record, and of ``hqueue access``."""

    CREATE = "create"
    """Create a topic."""
    PUBLISH = "publish"
    """Publish to a topic, put into a queue, notify workers of appends."""
    READ = "read"
    """Scan a queue through the Thrift API."""
    SUBSCRIBE = "subscribe"
    CONSUME = "consume"
    """Move a subscription's cursor; receive what workers deliver."""
    UNSUBSCRIBE = "unsubscribe"
    MOVE = "move"
    """Move a topic to another hub."""
    DELETE = "delete"
    """Delete a topic."""
    ADMINISTER = "administer"
    """See and change a topic's ACL."""


_Asked = tuple[str, Operation, str, str | None, str | None, bool]
"""The arguments of `AccessRules.rule_for`."""


@dataclasses.dataclass(frozen=True, slots=True)
class AccessRule:
    """Allows principals some operations. Each text except an operation may end with ``*``, which
    stands for any ending.

    Args:
        principal: the principals.
        operations: what they may do.
        queue: on which queues.
        topic: on which topics.
        name: the names of publishers and subscribers that they may use, even if they are another's;
            None for each principal's own names alone.

    Raises:
        InvalidInputError: an argument is of the wrong form.
    """

    principal: str
    operations: frozenset[Operation]
    queue: str = EVERYBODY
    topic: str = EVERYBODY
    name: str | None = None

    def __post_init__(self) -> None:
        if not self.operations:
            raise InvalidInputError("an access rule needs at least one operation")
        for text, check in (
            (self.principal, check_name),
            (self.topic, topic_bytes),
            (EVERYBODY if self.name is None else self.name, check_name),
        ):
            if text != EVERYBODY:
                check(text.removesuffix(EVERYBODY) if isinstance(text, str) else text)
        object.__setattr__(self, "queue", _queue_pattern(self.queue))

    @property
    def operation_names(self) -> list[str]:
        """The names of its operations, in their order."""
        return [each.value for each in Operation if each in self.operations]

    @property
    def scope(self) -> tuple[str, str, str, str | None]:
        """All but the operations: of one scope there is one rule."""
        return self.principal, self.queue, self.topic, self.name

    def allows(
        self, operation: Operation, queue: str, topic: str | None, name: str | None, *, own: bool
    ) -> bool:
        """As `AccessRules.rule_for`, for its principals."""
        return (
            operation in self.operations
            and is_among((self.queue,), queue)
            and (topic is None or is_among((self.topic,), topic))
            and (name is None or (own if self.name is None else is_among((self.name,), name)))
        )


class Login(NamedTuple):
    """Names who a program is, as it says itself: nobody checks that."""

    name: str
    kind: str
    """What the name is, such as ``Kerberos principal``."""


class AccessRules:
    """All rules, as one version of their record has them. Immutable; thread-safe.

    Args:
        rules: the rules.
        revision: what compare-and-set compares. Set by the store.
        changed_by: who changed them last; None if that is not known.

    Raises:
        InvalidInputError: there are too many.
    """

    def __init__(
        self,
        rules: Iterable[AccessRule] = (),
        revision: Version = NEW,
        changed_by: Login | None = None,
    ) -> None:
        self.revision = revision
        self.changed_by = changed_by
        merged: dict[tuple[str, str, str, str | None], AccessRule] = {}
        for rule in rules:
            operations = rule.operations
            if rule.scope in merged:
                operations |= merged[rule.scope].operations
            merged[rule.scope] = dataclasses.replace(rule, operations=operations)
        if len(merged) > RULES_MAX:
            raise InvalidInputError("there are too many access rules", rules_max=RULES_MAX)
        self._rules = tuple(
            merged[scope]
            for scope in sorted(merged, key=lambda scope: (*scope[:3], scope[3] or ""))
        )
        self._decided = functools.lru_cache(DECISIONS_KEPT_MAX)(self._search)

    def __iter__(self) -> Iterator[AccessRule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccessRules) and self._rules == other._rules

    def __hash__(self) -> int:
        return hash(self._rules)

    def rule_for(
        self,
        principal: str,
        operation: Operation,
        queue: str,
        topic: str | None = None,
        name: str | None = None,
        *,
        own: bool = True,
    ) -> AccessRule | None:
        """Return the rule by which a principal may do something; None if no rule allows it.

        Args:
            principal: who wants to do it.
            operation: what.
            queue: on which queue.
            topic: on which topic; ``*`` for all topics of the queue; None if it is enough that
                some topic is allowed.
            name: under which publisher's or subscriber's name; None if names don't matter.
            own: whether that name is the principal's own. Under another's a principal may do only
                what a rule with this name allows.
        """
        return self._decided((principal, operation, queue, topic, name, own))

    def granted(self, rule: AccessRule) -> AccessRules:
        """These rules and another one.

        Raises:
            InvalidInputError: there are too many.
        """
        return AccessRules((*self._rules, rule), self.revision)

    def revoked(self, rule: AccessRule) -> AccessRules:
        """These rules without the operations of one of the same scope. Rules of another scope stay,
        even those that allow the same.
        """
        kept = []
        for each in self._rules:
            left = each.operations - (rule.operations if each.scope == rule.scope else set())
            if left:
                kept.append(dataclasses.replace(each, operations=left))
        return AccessRules(kept, self.revision)

    def _search(self, asked: _Asked) -> AccessRule | None:
        principal, operation, queue, topic, name, own = asked
        for rule in self._rules:
            if is_among((rule.principal,), principal) and rule.allows(
                operation, queue, topic, name, own=own
            ):
                return rule
        return None


def _queue_pattern(text: str) -> str:
    """A queue's name, or a prefix of some: that of a namespace, too."""
    if text == EVERYBODY:
        return text
    if not isinstance(text, str) or not text.endswith(EVERYBODY):
        return check_queue_name(text)
    return check_queue_name(f"{text.removesuffix(EVERYBODY)}x").removesuffix("x") + EVERYBODY
