"""The settings of the Thrift API, which a worker or a hub may serve."""

from __future__ import annotations

import dataclasses

from hqueue.settings.addresses import PORT_MAX

__all__ = ["API_BOUNDS", "ApiSettings"]

API_BOUNDS = {
    "api_port": (0, PORT_MAX),
    "api_threads": (1, 256),
    "api_connections_max": (1, 65_536),
    "api_idle_ms": (1_000, 86_400_000),
    "scanners_max": (1, 1_000_000),
    "scanner_bytes_max": (1_024, 64 * 1024 * 1024),
    "scanners_bytes_max": (64 * 1024 * 1024, 2**40),
}


@dataclasses.dataclass(frozen=True)
class ApiSettings:
    """The settings of the Thrift API, of whatever process serves it. Times in milliseconds."""

    api_port: int | None = None
    """The port of the Thrift API; a free one if 0. It is not served if this is not set."""

    api_host: str = "127.0.0.1"
    """Where the Thrift API listens; ``0.0.0.0`` for everybody, who may then read and write all
    queues."""

    api_threads: int = 16
    """Calls of the Thrift API that are answered at a time."""

    api_connections_max: int = 1_024
    """Connections to the Thrift API; further ones wait."""

    api_idle_ms: int = 300_000
    """How long a scanner of the Thrift API is kept, and a connection to it, that nobody uses."""

    scanners_max: int = 1_024
    """Scanners of the Thrift API that are open at a time."""

    scanner_bytes_max: int = 1024 * 1024
    """What a scanner asks HBase for at a time, about, at least one batch; and the bytes of an
    answer, at least one message."""

    scanners_bytes_max: int = 128 * 1024 * 1024
    """What scanners hold together between calls, about. Where it is more, those that were unused
    for longest read again."""
