"""Checks that hubs answer, and accept this client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hqueue.connecting import open_client
from hqueue.doctor.certificates import tls_of
from hqueue.doctor.findings import Finding, ok, said, warning, wrong
from hqueue.doctor.peers import Peers, look_at_peers
from hqueue.doctor.subject import Subject
from hqueue.metadata.managers import MetadataMigration
from hqueue.metadata.managers.migration_state import MEMORY
from hqueue.net.alerts import refusal_in
from hqueue.net.contexts import TlsContexts
from hqueue.net.refusals import RefusedError
from hqueue.rpc.connection import Connection, ReportedError, ThriftError
from hqueue.rpc.services import load
from hqueue.settings.addresses import Address

__all__ = ["check_hubs", "look_at_move"]


def check_hubs(subject: Subject) -> Iterator[Finding]:
    """Call each hub that is given, or each that has registered for the queue."""
    settings = subject.settings
    hubs = subject.hubs
    if not hubs and subject.queue is not None:
        with open_client(settings) as client, client.topic_metadata(subject.queue) as metadata:
            hubs = tuple(sorted(metadata.hubs.list()))
            if settings.metadata_store != MEMORY:
                yield from look_at_move(client.metadata_migration(subject.queue), subject.queue)
        if not hubs:
            yield warning(
                "hubs",
                f"no hub serves {subject.queue!r}",
                f"if programs use topics of hubs, start a hub: hqueue hub {subject.queue}",
            )
    tls = tls_of(settings) if settings.tls else None
    timeout_s = settings.connect_timeout_ms / 1e3 / max(1, len(hubs))
    peers = Peers("hubs", "the hub", tls, "tls", timeout_s)
    for hub in hubs:
        (reached,) = look_at_peers(peers, [hub])
        yield reached
        if not reached.advice:
            yield _call(hub, tls, timeout_s)


def look_at_move(migration: MetadataMigration, queue: str) -> Iterator[Finding]:
    """Report a move of topics' metadata that has begun and not ended. The move's record does not
    say whether it is still under way or has stopped.
    """
    state = migration.state()
    if state.copy is None:
        return
    holds_up = "" if state.phase.is_open else ", and hubs wait for its end before they take topics"
    yield warning(
        "hubs",
        f"the metadata of {queue!r}'s topics is being moved to {state.copy.store} (phase "
        f"{state.phase.value}){holds_up}",
        "if no `hqueue metadata migrate` runs, run it again, or end the move: "
        f"hqueue metadata migrate {queue} --abandon",
    )


def _call(hub: Address, tls: TlsContexts | None, timeout_s: float) -> Finding:
    """Make one call: with TLS 1.3 a hub refuses a certificate only after the handshake."""
    service = load("hub").HQueueHubService
    try:
        with contextlib.closing(Connection(service, *hub, timeout_s, tls=tls)) as connection:
            connection.socket.settimeout(timeout_s)
            connection.client.apiAddress()
    except ReportedError as exc:
        return wrong(
            "hubs",
            f"the hub {hub} refuses this client: {exc}",
            "correct the setting of the hub that this line names, or this client's certificate; "
            "see that hub's audit",
        )
    except (OSError, *ThriftError, EOFError, ValueError) as exc:
        error = refusal_in(exc) or exc
        if isinstance(error, RefusedError):
            return wrong("hubs", f"the hub {hub}: {said(error)}", "see that hub's audit and log")
        return wrong(
            "hubs",
            f"the hub {hub} does not answer: {type(exc).__name__}: {exc}",
            "check that a hub listens there, and whether it speaks TLS while `tls` is off here; "
            "its log says more",
        )
    return ok("hubs", f"the hub {hub} answers this client")
