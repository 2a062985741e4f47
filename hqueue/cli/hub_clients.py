"""Clients of hubs, for commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.known import check_queue
from hqueue.cli.session import session_of
from hqueue.errors import HQueueError, HubUnavailableError, Outcome

if TYPE_CHECKING:
    from hqueue.settings.addresses import Address
    from hqueue.topics import HubClient

__all__ = ["HubsOption", "hub_client"]

VARIABLE = "HQUEUE_HUBS"

HubsOption = Annotated[
    str | None,
    typer.Option(
        "--hubs",
        envvar=VARIABLE,
        help="Addresses of some hubs, host:port with commas between; by default the hubs in "
        "ZooKeeper.",
    ),
]


def hub_client(context: typer.Context, queue: str, hubs: str | None, publisher: str) -> HubClient:
    """A client of these hubs, or of those that are registered.

    Raises:
        HubUnavailableError: none is.
        QueueNotFoundError: there is no such queue.
    """
    from hqueue.cli.absence import hub_absence  # noqa: PLC0415
    from hqueue.settings.connection import found_settings, setting_source  # noqa: PLC0415
    from hqueue.settings.port_security import PORT_SECURITY  # noqa: PLC0415
    from hqueue.topics import HubClient, HubClientSettings  # noqa: PLC0415  (not needed for help)
    from hqueue.topics.settings import hub_addresses  # noqa: PLC0415

    session = session_of(context)
    there = _registered(context, queue) if hubs is None else ()
    from_variable = hubs is not None and os.environ.get(VARIABLE) == hubs
    names = ("connect_timeout_ms", "operation_timeout_ms", *PORT_SECURITY)
    found = found_settings(names, session.given)
    try:
        settings = HubClientSettings(there or hub_addresses(hubs or ""), queue, publisher, **found)
    except HQueueError as exc:
        if from_variable:
            exc.facts["variable"] = VARIABLE
        elif (name := exc.facts.get("setting")) in found and name not in session.given:
            exc.facts["source"] = setting_source(str(name))
        raise
    source = "ZooKeeper" if there else VARIABLE if from_variable else "--hubs"
    if not settings.tls:  # It asks in clear, which a hub with TLS refuses.
        session.watch(hub_absence(settings.hubs, source, settings.operation_timeout_ms))
    return HubClient(settings)


def _registered(context: typer.Context, queue: str) -> tuple[Address, ...]:
    with session_of(context).client.topic_metadata(queue) as metadata:
        there = metadata.hubs.list()
    if not there:
        check_queue(session_of(context).client, queue)
        raise HubUnavailableError(
            "no hub of this queue is available; start one, or give --hubs",
            outcome=Outcome.NOT_APPLIED,
            queue=queue,
        )
    return tuple(sorted(there))
