"""Who may do what: one place that every call goes by."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from hqueue import InvalidInputError, SettingsError, TopicACL
from hqueue.metadata.managers import check_names
from hqueue.settings.names import is_among

__all__ = ["Action", "AllowAll", "Authorizer", "ByACL", "NameRules"]


class Action(enum.Enum):
    """What a caller wants to do with a topic."""

    CREATE = "create"
    """Create one that is not there. It has no ACL yet."""
    PUBLISH = "publish to"
    SUBSCRIBE = "subscribe to"
    """Subscribe to it, consume from it, unsubscribe."""
    MANAGE = "manage"
    """Move it to another hub, delete it, see and change its ACL."""


class Authorizer(Protocol):
    """Decides by the caller's principal if calls are secured, and else by a name that nobody has
    proven. Asked by several threads, for each call, by the hub that owns the topic: it answers at
    once, from what it knows.
    """

    def allows(self, caller: str, action: Action, queue: str, topic: str, acl: TopicACL) -> bool:
        """Whether a caller may do this with a topic, which has this ACL."""


class AllowAll:
    """Everybody may do everything."""

    def allows(self, caller: str, action: Action, queue: str, topic: str, acl: TopicACL) -> bool:
        return True


class ByACL:
    """A topic's ACL says who may publish, subscribe and manage. Names are written as in ACLs.

    Args:
        creators: who may create topics.
        administrators: who may do everything.

    Raises:
        InvalidInputError: these are not names.
    """

    def __init__(self, creators: Sequence[str], administrators: Sequence[str]) -> None:
        self._creators = check_names(creators, option="creators")
        self._administrators = check_names(administrators, option="administrators")

    def allows(self, caller: str, action: Action, queue: str, topic: str, acl: TopicACL) -> bool:
        allowed = {
            Action.CREATE: self._creators,
            Action.PUBLISH: acl.publish,
            Action.SUBSCRIBE: acl.subscribe,
            Action.MANAGE: acl.manage,
        }
        return is_among(allowed[action], caller) or is_among(self._administrators, caller)


class NameRules:
    """Whose the names are by which publishers and subscribers go: a principal's own name is its
    own, and rules give it others.

    Args:
        rules: ``principal:name`` with commas between.
        administrators: principals that may use all names, with commas between.

    Raises:
        SettingsError: these are not rules.
    """

    def __init__(self, rules: str = "", administrators: str = "") -> None:
        self._rules: list[tuple[str, str]] = []
        self._administrators = [name.strip() for name in administrators.split(",") if name.strip()]
        for rule in filter(None, map(str.strip, rules.split(","))):
            principal, _, name = rule.partition(":")
            try:
                check_names([principal], option="names")
                check_names([name], option="names")
            except InvalidInputError as exc:
                raise SettingsError(
                    "names must be principal:name, with commas between", names=rules
                ) from exc
            self._rules.append((principal, name))

    def allows(self, principal: str, name: str) -> bool:
        """Whether a principal may use a name."""
        return (
            name == principal
            or is_among(self._administrators, principal)
            or any(
                is_among([whose], principal) and is_among([of], name) for whose, of in self._rules
            )
        )
