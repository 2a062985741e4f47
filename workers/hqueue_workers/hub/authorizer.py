"""Who may do what: one place that every call goes by."""

from __future__ import annotations

from typing import Protocol

__all__ = ["AllowAll", "Authorizer"]


class Authorizer(Protocol):
    """Decides by the caller's name, which nobody has proven. Asked by several threads, for each
    call: it answers at once, from what it knows.
    """

    def may_create(self, caller: str, queue: str, topic: str) -> bool:
        """Whether a topic that is not there may be created."""

    def may_publish(self, caller: str, queue: str, topic: str) -> bool:
        """Whether messages may be published to a topic."""

    def may_subscribe(self, caller: str, queue: str, topic: str) -> bool:
        """Whether a subscriber may subscribe to a topic, consume from it, and unsubscribe."""

    def may_manage(self, caller: str, queue: str, topic: str) -> bool:
        """Whether a topic may be moved to another hub, and deleted."""


class AllowAll:
    """Everybody may do everything."""

    def may_create(self, caller: str, queue: str, topic: str) -> bool:
        return True

    def may_publish(self, caller: str, queue: str, topic: str) -> bool:
        return True

    def may_subscribe(self, caller: str, queue: str, topic: str) -> bool:
        return True

    def may_manage(self, caller: str, queue: str, topic: str) -> bool:
        return True
