"""What hubs are sent and send, as the library has it."""

from __future__ import annotations

from typing import Any

from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.rpc.services import load

__all__ = ["preferences_of", "preferences_struct", "text_of"]


def preferences_struct(preferences: SubscriptionPreferences) -> Any:
    """Preferences as the IDL has them."""
    return load("hub").TPreferences(
        messageBound=preferences.message_bound,
        consumeInterval=preferences.consume_interval,
        deliveryWindow=preferences.delivery_window,
        application=dict(preferences.application),
    )


def preferences_of(given: Any) -> SubscriptionPreferences:
    """Preferences that a hub told, or none."""
    if given is None:
        return SubscriptionPreferences()
    return SubscriptionPreferences(
        given.messageBound,
        given.consumeInterval,
        given.deliveryWindow,
        {text_of(name): text_of(value) for name, value in (given.application or {}).items()},
    )


def text_of(given: bytes | str | None) -> str:
    """A text that a hub told."""
    return given.decode(errors="replace") if isinstance(given, bytes) else given or ""
