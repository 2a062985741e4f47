"""Decides who may do what, in one place for all calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hqueue import InvalidInputError, SettingsError, TopicACL
from hqueue.metadata.access_rules import Operation
from hqueue.metadata.managers import check_names
from hqueue.net.principals import ANONYMOUS
from hqueue.settings.names import is_among, names_in
from hqueue_workers.node.access_control import AccessControl

__all__ = ["AllowAll", "Authorizer", "ByACL", "ByRules", "NameRules", "Operation"]


class Authorizer(Protocol):
    """Decides what callers may do: by their principals if calls are secured, otherwise by unproven
    names. The hub that owns the topic asks it for each call, from several threads, so it must
    answer at once, without asking other processes.
    """

    def allows(
        self, caller: str, operation: Operation, queue: str, topic: str, acl: TopicACL
    ) -> bool:
        """Whether a caller may do this with a topic that has this ACL. A topic that must be created
        first has no ACL of its own yet.
        """


class AllowAll:
    """Everybody may do everything."""

    def allows(
        self, caller: str, operation: Operation, queue: str, topic: str, acl: TopicACL
    ) -> bool:
        return True


class ByACL:
    """A topic's ACL says who may publish, subscribe and manage. Names are written as in ACLs.

    Args:
        creators: the names that may create topics.
        administrators: the names that may do everything.

    Raises:
        InvalidInputError: one of them is not a name.
    """

    def __init__(self, creators: Sequence[str], administrators: Sequence[str]) -> None:
        self._creators = check_names(creators, option="creators")
        self._administrators = check_names(administrators, option="administrators")

    def allows(
        self, caller: str, operation: Operation, queue: str, topic: str, acl: TopicACL
    ) -> bool:
        match operation:
            case Operation.CREATE:
                allowed = self._creators
            case Operation.PUBLISH:
                allowed = tuple(acl.publish)
            case Operation.READ | Operation.SUBSCRIBE | Operation.CONSUME | Operation.UNSUBSCRIBE:
                allowed = tuple(acl.subscribe)
            case Operation.MOVE | Operation.DELETE | Operation.ADMINISTER:
                allowed = tuple(acl.manage)
        return is_among(allowed, caller) or is_among(self._administrators, caller)


class ByRules:
    """The access rules and the topic's ACL must both allow it.

    Args:
        access: the access rules.
        acls: decides by ACLs.
    """

    def __init__(self, access: AccessControl, acls: ByACL) -> None:
        self._access = access
        self._acls = acls

    def allows(
        self, caller: str, operation: Operation, queue: str, topic: str, acl: TopicACL
    ) -> bool:
        return self._access.allows(caller, operation, queue, topic) and self._acls.allows(
            caller, operation, queue, topic, acl
        )


class NameRules:
    """Says which principals may use which names of publishers and subscribers: each its own, and
    those that the setting `names` or an access rule gives it. Without access rules, callers that
    prove nothing use all names that are not given to another principal by what it has created.

    Args:
        rules: ``principal:name`` with commas between.
        administrators: principals that may use all names, with commas between.
        access: the access rules; None if they don't count.

    Raises:
        SettingsError: these are not rules.
    """

    def __init__(
        self, rules: str = "", administrators: str = "", access: AccessControl | None = None
    ) -> None:
        self._rules: list[tuple[str, str]] = []
        self._administrators = names_in(administrators)
        self._access = access
        for rule in names_in(rules):
            principal, _, name = rule.partition(":")
            try:
                check_names([principal], option="names")
                check_names([name], option="names")
            except InvalidInputError as exc:
                raise SettingsError(
                    "names must be pairs principal:name, with commas between", names=rules
                ) from exc
            self._rules.append((principal, name))

    def allows(
        self,
        principal: str,
        operation: Operation,
        queue: str,
        topic: str,
        name: str,
        *,
        owner: str | None,
    ) -> bool:
        """Whether a principal may do something with a topic under a name.

        Args:
            owner: the principal that the name belongs to; None if it has no owner yet.
        """
        if is_among(self._administrators, principal) or any(
            is_among([whose], principal) and is_among([of], name) for whose, of in self._rules
        ):
            return True
        # A principal can't take a name that is another principal's, even before that one comes.
        own = principal == (name if owner is None else owner)
        if self._access is None:
            return own or (principal == ANONYMOUS and owner in (None, name))
        return self._access.allows(principal, operation, queue, topic, name, own=own)
