"""Hubs with certificates on both sides, over memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import hqueue
from hqueue import NotAllowedError
from hqueue.metadata.access_rules import AccessRule, Operation
from hqueue.metadata.ports import ANY, NEW, Change
from hqueue.net.contexts import TlsContexts
from hqueue.net.tls_files import TlsFiles
from hqueue.rpc.connection import Connection
from hqueue.rpc.services import load
from hqueue.settings.addresses import Address
from hqueue_workers.hub.serving.service import hub_service
from tests.support.backends import Backend, MemoryBackend
from tests.support.certificates import Certificates
from tests.support.hub_faces import connected
from tests.support.hubs import HubThread

__all__ = ["QUEUE", "RULES", "RuledHubs", "SecuredHubs"]

QUEUE = "q"
RULES = {"authorizer": "rules", "creators": "*", "administrators": "ops"}
ACL = {"authorizer": "acl", "creators": "loader,ops", "administrators": "ops"}


class SecuredHubs:
    """Hubs with certificates, and their clients.

    Args:
        stack: closes all of it.
        certificates: those of all.
        backend: where the queue lies; a memory of its own if None.
        queue: the queue's name.
        settings: of all connections.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        certificates: Certificates,
        backend: Backend | None = None,
        queue: str = QUEUE,
        **settings: Any,
    ) -> None:
        self.stack = stack
        self.certificates = certificates
        self.name = queue
        self._backend = backend or MemoryBackend().apart(2_000)
        self._settings = settings
        self.queue = self.open().create_queue(queue, partitions=2)
        self.hubs: list[HubThread] = []

    def open(self, **settings: Any) -> hqueue.Client:
        """A client of the back end, without a certificate if none is given."""
        return self.stack.enter_context(self._backend.connect(**self._settings, **settings))

    def hub(self, **settings: Any) -> HubThread:
        """Start another hub, by default one that goes by ACLs."""
        client = self.open(**self.certificates.of("hub"))
        running = HubThread(client, self.name, **{**ACL, **settings})
        self.hubs.append(self.stack.enter_context(running))
        return running

    def connect(self, name: str, *, in_loop: bool = False, **options: Any) -> Any:
        """A client of the hubs with the certificate of this principal."""
        made = {
            each: options.pop(each) for each in ("authority", "days", "subject") if each in options
        }
        given = {
            **self.certificates.of(name, **made),
            "queue": self.name,
            "operation_timeout_ms": 20_000,
            "delivery_principals": "hub",
            **options,
        }
        hubs = [hub.address for hub in self.hubs if hub.alive]
        return self.stack.enter_context(connected(hubs, in_loop=in_loop, **given))

    def consume(self, principal: str, topic: str, subscriber: str, *, at: HubThread) -> None:
        """Move a cursor at the hub that owns the topic, as a caller without the library could.

        Raises:
            NotAllowedError: the hub refuses it.
        """
        first = load("subscriber").TMessageID(0, 0)
        with self.calls(principal, at.address) as calls:
            try:
                calls.consume(self.name, subscriber, topic, first, False)
            except load("hub").TNotAllowed as exc:
                raise NotAllowedError(str(exc.message)) from exc

    @contextlib.contextmanager
    def calls(self, principal: str, at: Address, service: Any = None) -> Iterator[Any]:
        """The calls of a port, as a caller without the library makes them.

        Args:
            principal: whose certificate it shows.
            at: the port.
            service: of the port; that of a hub if None.
        """
        found = self.certificates.of(principal)
        tls = TlsContexts(TlsFiles(found["tls_ca"], found["tls_certificate"]))
        opened = Connection(service or hub_service(), *at, 20, tls=tls)
        with contextlib.closing(opened) as connection:
            connection.socket.settimeout(20)
            yield connection.client


class RuledHubs(SecuredHubs):
    """Hubs that go by access rules. As `SecuredHubs`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.coordination = self.open().coordination

    def change(self, verb: str, principal: str, operations: str, **scope: Any) -> None:
        """Grant or revoke a rule, as ``hqueue access`` does."""
        named = frozenset(Operation(name) for name in operations.split(","))
        rule = AccessRule(principal, named, **scope)
        self.coordination.access_rules.change(
            lambda rules: rules.granted(rule) if verb == "grant" else rules.revoked(rule)
        )

    def write(self, value: bytes) -> None:
        """The rules' record, as a foreign program could."""
        records, path = self.coordination.store.records, self.coordination.paths.access_rules
        records.write({path: Change(value, ANY if records.read([path]) else NEW)})
