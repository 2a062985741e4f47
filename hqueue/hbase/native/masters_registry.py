"""The registry of a cluster whose masters say where its servers are: HBase's ClientMetaService."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hqueue.errors import (
    ClosedError,
    HQueueError,
    Outcome,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.hbase.native.exchanges import Ask, Asking, Request
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.registry import Registry, address_of
from hqueue.hbase.native.translation import reads_answer
from hqueue.hbase.native.wire import REGISTRY, Answer
from hqueue.net.kdc import kdc_error_of
from hqueue.runtime.clock import bounded_ms
from hqueue.settings.addresses import Address
from hqueue.settings.connection import Settings

__all__ = ["MastersRegistry"]

Result = TypeVar("Result")


class MastersRegistry(Registry):
    """The masters' view of the cluster. Thread-safe, and usable in a forked child.

    Active ones answer and those on standby: they are asked one after the other, until one names
    what is asked for. The next question goes to that one first; and to another first once what it
    named was doubted, for a master that lost touch with its cluster names servers that are gone.
    One that hangs has its share of ``request_timeout_ms``, so that all others are asked in time.

    Args:
        settings: the bounds.
        masters: where they listen: at least one. Since HBase 2.5 region servers answer as well.
    """

    def __init__(self, settings: Settings, masters: Sequence[Address]) -> None:
        super().__init__()
        self._settings = settings
        self._masters = tuple(masters)

    def cluster_id(self) -> Asking[str]:
        def take(said: Any) -> str:
            return str(said.cluster_id)

        return (yield from self._ask(b"GetClusterId", pb.GetClusterIdResponse, take))

    def _find_meta(self) -> Asking[Address]:
        kind = pb.GetMetaRegionLocationsResponse
        return (yield from self._ask(b"GetMetaRegionLocations", kind, _meta_of))

    def _find_master(self) -> Asking[Address]:
        def take(said: Any) -> Address | None:
            return address_of(said.server_name) if said.HasField("server_name") else None

        return (yield from self._ask(b"GetActiveMaster", pb.GetActiveMasterResponse, take))

    def _doubt(self, name: str, address: Address) -> bool:
        doubted = super()._doubt(name, address)
        if doubted:
            masters = self._masters
            self._masters = (*masters[1:], masters[0])
        return doubted

    def _ask(
        self, method: bytes, kind: Any, take: Callable[[Any], Result | None]
    ) -> Asking[Result]:
        """The first answer of a master's that has in it what `take` takes out."""
        masters = self._masters
        ends_s = time.monotonic() + bounded_ms(self._settings.request_timeout_ms) / 1e3
        errors: list[HQueueError] = []
        for number, master in enumerate(masters):
            request = Request(master, method, b"", service=REGISTRY)
            share_ms = (ends_s - time.monotonic()) * 1e3 / (len(masters) - number)
            try:
                found = yield from self._ask_one(request, kind, take, max(1.0, share_ms))
            except ClosedError as exc:
                exc.outcome = Outcome.NOT_APPLIED
                raise
            except (RequestRefusedError, StoreUnavailableError) as exc:
                errors.append(exc)
                continue
            self._masters = (*masters[number:], *masters[:number])
            return found
        if all(isinstance(error, RequestRefusedError) or kdc_error_of(error) for error in errors):
            raise errors[0]  # No master is to blame for a KDC that is away.
        raise StoreUnavailableError(
            "no HBase master answers where the cluster's servers are",
            outcome=Outcome.NOT_APPLIED,
            masters=[str(master) for master in masters],
            request=method.decode(),
            reason="; ".join(map(str, errors)),
        ) from errors[-1]

    @reads_answer
    def _ask_one(
        self, request: Request, kind: Any, take: Callable[[Any], Result | None], bound_ms: float
    ) -> Asking[Result]:
        answer: Answer = yield Ask(request, "", bound_ms)
        found = take(kind.FromString(answer.message))
        if not found:
            raise StoreUnavailableError(
                "an HBase master does not know the location now",
                outcome=Outcome.NOT_APPLIED,
                server=str(request.address),
            )
        return found


def _meta_of(said: Any) -> Address | None:
    """The server of ``hbase:meta`` itself, among those of its replicas."""
    for location in said.meta_locations:
        if not location.region_info.replica_id and location.HasField("server_name"):
            return address_of(location.server_name)
    return None
