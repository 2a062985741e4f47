"""The settings of a client of hubs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hqueue.errors import InvalidInputError, SettingsError
from hqueue.metadata import check_name
from hqueue.settings.addresses import Address
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.connection import found_settings
from hqueue.settings.fields import check_fields
from hqueue.settings.loading import all_known
from hqueue.settings.port_security import (
    PORT_SECURITY,
    PortSecurityOptions,
    PortSecuritySettings,
    check_port_security,
)

__all__ = [
    "HubClientSettings", "HubOptions", "hub_addresses", "hub_settings", "queue_named",
]  # fmt: skip

_BOUNDS = {
    "connect_timeout_ms": (1, 3_600_000),
    "operation_timeout_ms": (1, 3_600_000),
    "redirects_max": (1, 100),
    "connections_max": (1, 10_000),
    "owners_max": (1, 10_000_000),
}


class HubOptions(PortSecurityOptions, total=False):
    """Settings of a client of hubs by their names in `HubClientSettings`."""

    queue: str | None
    publisher: str
    connect_timeout_ms: int
    operation_timeout_ms: int
    redirects_max: int
    connections_max: int
    owners_max: int


@dataclasses.dataclass(frozen=True)
class HubClientSettings(PortSecuritySettings):
    """All settings of a client of hubs. Frozen, and checked when made. Times are in milliseconds.

    Raises:
        SettingsError: a setting has a wrong value.
    """

    hubs: tuple[Address, ...]
    """Some of the hubs, any of which can be called and knows the others. A list, or a text with
    commas: ``host:port,host:port``.
    """

    queue: str | None = None
    """The queue of the topics, for calls that give none."""

    publisher: str = "hqueue"
    """The caller's name that hubs see, 1 to 200 characters."""

    connect_timeout_ms: int = 3_000
    """The time limit for opening a connection to a hub."""

    operation_timeout_ms: int = 90_000
    """The time limit for a publish with all its redirects and retries. Set it above the hubs' own
    ``operation_timeout_ms``, within which a hub learns the outcome of an append.
    """

    redirects_max: int = 8
    """How many redirects to follow in a row before a pause."""

    connections_max: int = 8
    """How many idle connections to keep for each hub. Every call uses a connection alone, so more
    are open while more threads publish.
    """

    owners_max: int = 100_000
    """For how many topics the client remembers the owning hub."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hubs", hub_addresses(self.hubs))
        check_fields(self, _BOUNDS)
        check_port_security(self)
        try:
            check_name(self.publisher)
            if self.queue is not None:
                object.__setattr__(self, "queue", check_queue_name(self.queue))
        except InvalidInputError as exc:
            raise SettingsError(exc.text, publisher=self.publisher, queue=self.queue) from exc


def hub_addresses(given: str | Address | Sequence[str | Address]) -> tuple[Address, ...]:
    """Hubs as they are given: a list, or a text with commas between.

    Raises:
        SettingsError: no hub is named, or one is not written ``host:port``.
    """
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",") if part.strip()]
    elif isinstance(given, Address):
        given = [given]
    try:
        found = tuple(each if isinstance(each, Address) else Address.parse(each) for each in given)
    except (InvalidInputError, TypeError, AttributeError) as exc:
        raise SettingsError(
            "hubs must be written as host:port, with commas between them", hubs=given
        ) from exc
    if not found:
        raise SettingsError("at least one hub is needed")
    return found


def hub_settings(
    hubs: str | Address | Sequence[str | Address], given: HubOptions
) -> HubClientSettings:
    """The settings of a client, made of its hubs and of single settings. TLS settings that are not
    given are looked for where `hqueue.connect` finds them, unless `tls` is False.

    Raises:
        SettingsError: a setting is unknown or has a wrong value.
    """
    known = all_known(HubClientSettings, {}, given)
    if known.get("tls") is not False:
        named = {name: known[name] for name in PORT_SECURITY if name in known}
        known |= found_settings(PORT_SECURITY, named)
    return HubClientSettings(hub_addresses(hubs), **known)


def queue_named(settings: HubClientSettings, given: str | None) -> str:
    """The queue that a call names, or the setting.

    Raises:
        InvalidInputError: there is neither, or the name is not a valid queue name.
    """
    chosen = settings.queue if given is None else given
    if chosen is None:
        raise InvalidInputError(
            "no queue is named: name it in this call, or when you make the client"
        )
    return check_queue_name(chosen)
