"""Checks HBase: its servers, whether they let this client in, and its rights on a queue."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator

from hqueue.connecting import first_servers, open_store
from hqueue.doctor.certificates import tls_of
from hqueue.doctor.clocks import clock_finding
from hqueue.doctor.findings import Finding, Level, of_error, ok, wrong
from hqueue.doctor.names import look_up
from hqueue.doctor.peers import Peers, look_at_peers
from hqueue.doctor.subject import Subject
from hqueue.errors import HQueueError, RequestRefusedError
from hqueue.handle.opening_record import NAME as OPENING
from hqueue.net.endpoints import Met
from hqueue.settings.addresses import Address
from hqueue.settings.connection import HTTP, NATIVE, Settings
from hqueue.store import StorePort

__all__ = ["check_hbase"]

_AWAY = "check that HBase runs, and see its log"


def check_hbase(subject: Subject) -> Iterator[Finding]:
    """Find HBase's servers, call them, and list queues; read and write the subject's queue."""
    settings = subject.settings
    servers = _servers(subject) if settings.hbase == NATIVE else _gateways(settings)
    if not (yield from servers):
        return
    with contextlib.closing(open_store(settings)) as store:
        try:
            queues = [each.name for each in store.tables.list()]
        except HQueueError as exc:
            yield of_error("hbase", exc, away=_AWAY)
            return
        shown = f"{len(queues)} {'queue' if len(queues) == 1 else 'queues'}"
        yield ok("hbase", f"HBase lets this client in, and shows it {shown}")
        if subject.queue is not None:
            yield from _look_at_queue(store, subject, subject.queue, queues)


def _servers(subject: Subject) -> Generator[Finding, None, bool]:
    """Look at the servers that everything else is found by. Return whether they can be called."""
    settings = subject.settings
    tls = tls_of(settings, "hbase_tls") if settings.hbase_tls else None
    masters = settings.hbase_masters
    timeout_s = settings.connect_timeout_ms / 1e3
    peers = Peers("hbase", "HBase's server", tls, "hbase_tls", timeout_s, Met.HBASE)
    if masters:
        found = [*look_at_peers(peers._replace(timeout_s=timeout_s / len(masters)), masters)]
        yield from found
        if not _any_is_well(found):
            return False
    try:
        servers = first_servers(settings)
    except HQueueError as exc:
        yield of_error("hbase", exc, away=_AWAY)
        return False
    yield from look_up([server.host for server in servers], by_kerberos=subject.is_proven)
    found = [*look_at_peers(peers, [each for each in servers if each not in masters])]
    yield from found
    return all(each.level is not Level.WRONG for each in found)


def _gateways(settings: Settings) -> Generator[Finding, None, bool]:
    """Like `_servers`, for gateways: one is enough."""
    addresses = [
        Address(gateway.host, port)
        for gateway in settings.gateways
        for port in (gateway.thrift1_port, gateway.thrift2_port)
    ]
    kind = Met.WEB if settings.transport == HTTP else Met.THRIFT
    tls = tls_of(settings, "gateways_tls") if settings.gateways_tls else None
    timeout_s = settings.connect_timeout_ms / 1e3
    peers = Peers("hbase", "the gateway", tls, "gateways_tls", timeout_s, kind)
    found = [*look_at_peers(peers, addresses)]
    yield from found
    return _any_is_well(found)


def _any_is_well(found: Iterable[Finding]) -> bool:
    return any(each.level is not Level.WRONG for each in found)


def _look_at_queue(
    store: StorePort, subject: Subject, queue: str, queues: list[str]
) -> Iterator[Finding]:
    grant = f"in HBase's shell: grant 'PRINCIPAL', 'RW', '{queue}'"
    log = store.log(queue)
    try:
        log.newest(0, 0)
        if queue not in queues and log.record(OPENING) is None:
            yield wrong(
                "queue",
                f"no queue {queue!r} exists, or this client may not open it",
                "compare the name with `hqueue list`, which leaves out queues that this principal "
                "may not describe; in HBase's shell: grant 'PRINCIPAL', 'RWC', "
                f"'{queue}', or have a principal with C alter the queue",
            )
    except RequestRefusedError as exc:
        yield of_error("queue", exc, grant)
        return
    except HQueueError as exc:
        yield of_error("queue", exc, away=_AWAY)
        return
    yield ok("queue", f"this client may read {queue!r}")
    try:
        ahead_ms, error_ms = log.clock_offset_ms()
    except RequestRefusedError as exc:
        yield of_error("queue", exc, f"if this client must write, {grant}")
        return
    except HQueueError as exc:
        yield of_error("queue", exc, away=_AWAY)
        return
    yield ok("queue", f"this client may write {queue!r}")
    yield clock_finding(
        "HBase's region server", ahead_ms, error_ms, subject.settings.clock_skew_ms_max
    )
