"""The list of available hubs: always in ZooKeeper, wherever topics' metadata lies.

It is Hedwig's tree; a queue is a Hedwig region:

    <root>/regions/<queue>/hosts/<host:port>         a hub that was there once
    <root>/regions/<queue>/hosts/<host:port>/alive   ephemeral: it is there now

The second is ``{"version": 1, "incarnation": "…", "load": 3}``.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence

from hqueue.errors import (
    HQueueError,
    InvalidInputError,
    RequestRefusedError,
    SettingsError,
    UnsupportedFormatError,
)
from hqueue.metadata.directory import Directory
from hqueue.metadata.encoding import decode_fields, encode_fields, text_of
from hqueue.metadata.managers.infos import HubInfo
from hqueue.metadata.managers.layout import segment, segment_name
from hqueue.metadata.ports import ANY, MetadataStore, Obstacle, Record, Watch
from hqueue.metadata.registration import Registration
from hqueue.metadata.steps import Delete, Keys, OnStore, Read, Work
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.addresses import Address
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.kinds import check_callback, check_kind
from hqueue.settings.numbers import check_whole

__all__ = [
    "AvailableHub",
    "HubRegistration",
    "Hubs",
    "OnFailure",
    "decode_hub",
    "encode_hub",
    "ignore_failure",
]

ALIVE = "alive"
ALIVE_DEPTH = 2
LOAD_MAX = 2**63 - 1

OnFailure = Callable[[HQueueError], None]


def ignore_failure(error: HQueueError) -> None:
    """Does nothing: `HubRegistration.failure` has the error."""


@dataclasses.dataclass(frozen=True, slots=True)
class AvailableHub:
    """A hub that is available.

    Args:
        info: the hub.
        load: its load, 0 or more, in a unit that the hubs of a queue share.

    Raises:
        InvalidInputError: the load is out of range.
    """

    info: HubInfo
    load: int = 0

    def __post_init__(self) -> None:
        check_whole(self.load, 0, LOAD_MAX, option="load")


class HubRegistration(Stepwise):
    """The registration of a hub, which is available until the registration is closed. Made by
    `Hubs.register`.
    """

    def __init__(self, key: str, hub: AvailableHub, registration: Registration) -> None:
        self.info = hub.info
        """The hub."""
        self._key = key
        self._registration = registration

    @property
    def failure(self) -> HQueueError | None:
        """The error that prevented registering the hub again, so that it is not available any more;
        None if there is none.
        """
        return self._registration.failure

    @stepwise
    def update(self, load: int) -> Work[None]:
        """Update the hub's load in its record."""
        value = encode_hub(AvailableHub(self.info, load))
        yield self._registration.replace.asked({self._key: value})

    @stepwise
    def close(self) -> Work[None]:
        """Unregister the hub. Never raises."""
        yield self._registration.close.asked()


class Hubs(OnStore):
    """The available hubs of a queue. Thread-safe.

    Args:
        store: a session with ZooKeeper.
        root: the prefix of all keys.
        queue: the queue.
        clock: measures the wait for a hub that may be dead.
        loop: the loop that carries registrations and watches; the session's if None.
    """

    def __init__(
        self,
        store: MetadataStore,
        root: str,
        queue: str,
        clock: Clock = SYSTEM_CLOCK,
        loop: BackgroundLoop | None = None,
    ) -> None:
        super().__init__(store, clock)
        self._loop = loop
        self._hosts = f"{root}/regions/{check_queue_name(queue)}/hosts"
        self._available = Directory(
            store, self._hosts, ALIVE_DEPTH, self._decode, "a hub", alone=True
        )

    @stepwise
    def register(
        self,
        hub: HubInfo,
        load: int = 0,
        on_failure: OnFailure = ignore_failure,
    ) -> Work[HubRegistration]:
        """Register a hub as available, and again after each loss of the session, until the
        registration is closed.

        An earlier incarnation at the same address can't be alive; it is replaced at once.

        Args:
            hub: the hub.
            load: its load.
            on_failure: called if the hub can't be registered again.

        Raises:
            InvalidInputError: an argument has the wrong type, or the hub's address can't be written
                so that it can be read back. Nothing was sent.
            RequestRefusedError: a record that this release does not know is registered at the
                address, and its session does not end.
        """
        available = AvailableHub(check_kind(hub, HubInfo, "hub"), load)
        check_callback(on_failure, "on_failure", needed=True)
        Address.parse(str(hub.address))
        key = self._alive(hub.address)
        registration = Registration(
            self._store,
            [{key: encode_hub(available)}],
            is_own=lambda value: _incarnation(value) is not None,
            on_obstacle=_in_the_way,
            on_failure=on_failure,
            parents=True,
            clock=self._clock,
            loop=self._loop,
        )
        yield from registration.begin.steps()
        return HubRegistration(key, available, registration)

    @stepwise
    def list(self) -> Work[Mapping[Address, AvailableHub]]:
        """The available hubs, by address. A hub whose record can't be read is left out and
        logged.
        """
        return (yield from self._available.list())

    def watch(self, listener: Callable[[Mapping[Address, AvailableHub]], None]) -> Watch:
        """Report the available hubs to a listener, as `MetadataStore.watch`.

        Raises:
            InvalidInputError: the listener can't be called, or is a coroutine function.
        """
        check_callback(listener, "listener", needed=True)
        return self._available.watch(listener, self._loop)

    @stepwise
    def is_available(self, hub: HubInfo) -> Work[bool]:
        """Whether this incarnation of a hub is available at a moment after the call began, even if
        the session is with a ZooKeeper server that lags behind.
        """
        key = self._alive(hub.address)
        # It changes nothing; but as a change it goes through the leader, and what this session
        # reads next is as it was then, or later.
        yield Delete({f"{key}/none": ANY})
        found = (yield Read([key])).get(key)
        return found is not None and _incarnation(found.value) == hub.incarnation

    @stepwise
    def drop(self, address: Address) -> Work[bool]:
        """Delete the record of a hub that does not come back. Returns False if the hub is
        available: then the record stays.
        """
        host = self._host(address)
        yield Delete({host: ANY})
        return host not in (yield Keys(self._hosts, 1))

    @stepwise
    def drop_gone(self) -> Work[None]:
        """Delete the records of all hubs that are not available."""
        hosts: Sequence[str] = yield Keys(self._hosts, 1)
        yield Delete(dict.fromkeys(hosts, ANY))
        yield Delete({self._hosts: ANY}, levels_above=1)

    def _host(self, address: Address) -> str:
        return f"{self._hosts}/{segment(str(address))}"

    def _alive(self, address: Address) -> str:
        return f"{self._host(address)}/{ALIVE}"

    @staticmethod
    def _decode(path: str, found: Mapping[str, Record]) -> tuple[Address, AvailableHub] | None:
        host, last = path.split("/")[-2:]
        name = segment_name(host)
        if last != ALIVE or name is None:
            return None
        with contextlib.suppress(InvalidInputError, SettingsError):
            address = Address.parse(name)
            return address, decode_hub(found[path].value, path, address)
        return None


def encode_hub(hub: AvailableHub) -> bytes:
    """The record of a hub that is there."""
    return encode_fields(incarnation=hub.info.incarnation, load=hub.load)


def decode_hub(data: bytes, path: str, address: Address) -> AvailableHub:
    """Reads it; `path` is where it lies, for errors."""
    return decode_fields(
        data,
        path,
        lambda fields: AvailableHub(
            HubInfo(address, text_of(fields["incarnation"])), fields["load"]
        ),
    )


def _incarnation(value: bytes) -> str | None:
    """Which incarnation a record is of; None if it can't be read."""
    try:
        return decode_fields(value, "", lambda fields: text_of(fields["incarnation"]))
    except UnsupportedFormatError:
        return None


def _in_the_way(obstacle: Obstacle) -> RequestRefusedError:
    return RequestRefusedError(
        "another hub is registered at this address: stop it, or give this one another address",
        path=obstacle.key,
        record=(obstacle.value or b"").decode(errors="replace"),
    )
