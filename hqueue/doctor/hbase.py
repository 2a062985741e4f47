"""Checks HBase: its servers, whether they let this client in, and its rights on a queue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hqueue.connecting import first_servers, open_store
from hqueue.doctor.certificates import tls_of
from hqueue.doctor.clocks import clock_finding
from hqueue.doctor.findings import Finding, of_error, ok, wrong
from hqueue.doctor.names import look_up
from hqueue.doctor.peers import look_at_peers
from hqueue.doctor.subject import Subject
from hqueue.errors import HQueueError, RequestRefusedError
from hqueue.settings.addresses import Address
from hqueue.settings.connection import NATIVE
from hqueue.store import StorePort

__all__ = ["check_hbase"]

_AWAY = "check that HBase runs, and see its log"


def check_hbase(subject: Subject) -> Iterator[Finding]:
    """Find HBase's servers, call them, and list queues; read and write the subject's queue."""
    settings = subject.settings
    timeout_s = settings.connect_timeout_ms / 1e3
    if settings.hbase == NATIVE:
        try:
            master, meta = first_servers(settings)
        except HQueueError as exc:
            yield of_error("hbase", exc, away=_AWAY)
            return
        servers = (master, meta)
        yield from look_up([server.host for server in servers], by_kerberos=subject.is_proven)
        tls = tls_of(settings) if settings.hbase_tls else None
        yield from look_at_peers("hbase", "HBase's server", servers, tls, timeout_s)
    else:
        gateways = [
            Address(gateway.host, port)
            for gateway in settings.gateways
            for port in (gateway.thrift1_port, gateway.thrift2_port)
        ]
        tls = tls_of(settings) if settings.gateways_tls else None
        yield from look_at_peers("hbase", "the gateway", gateways, tls, timeout_s)
    with contextlib.closing(open_store(settings)) as store:
        try:
            queues = [each.name for each in store.tables.list()]
        except HQueueError as exc:
            yield of_error("hbase", exc, away=_AWAY)
            return
        yield ok("hbase", f"HBase lets this client in, and shows it {len(queues)} queues")
        if subject.queue is not None:
            yield from _look_at_queue(store, subject, subject.queue, queues)


def _look_at_queue(
    store: StorePort, subject: Subject, queue: str, queues: list[str]
) -> Iterator[Finding]:
    grant = f"in HBase's shell: grant 'PRINCIPAL', 'RWC', '{queue}'"
    if queue not in queues:
        yield wrong(
            "queue",
            f"no queue {queue!r} exists, or this client may not open it",
            "compare the name with `hqueue list`, which leaves out queues that this principal may "
            f"not open; {grant}",
        )
    log = store.log(queue)
    try:
        log.newest(0, 0)
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
