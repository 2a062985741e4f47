"""The settings of the Thrift API, which a worker or a hub may serve."""

from __future__ import annotations

import dataclasses

from hqueue.settings.addresses import PORT_MAX
from hqueue_workers.node.access_settings import AccessSettings

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
class ApiSettings(AccessSettings):
    """The settings of the Thrift API, in a worker or a hub. Times are in milliseconds."""

    api_port: int | None = None
    """The port of the Thrift API; a free port if 0. If not given, the API is not served."""

    api_host: str = "127.0.0.1"
    """The address that serves the Thrift API; ``0.0.0.0`` for all interfaces. Callers that reach it
    may read and write all queues, unless `authorizer` is ``rules``.
    """

    api_principals: str = "*"
    """With the connection's ``tls``, the principals that may call the Thrift API: names with commas
    between. A name that ends with ``*`` stands for all names that begin with the text before it.
    """

    metrics_principals: str = "*"
    """With ``tls``, the principals that may read health and metrics: names as for `api_principals`.
    """

    quotas: str = ""
    """The limits of each caller: rules separated by commas, such as ``loader:calls=5000,
    *:calls=1000 bytes_in=10485760``. The first rule that matches the caller's principal and has a
    limit sets it; without ``tls`` each address is a caller, and ``anonymous`` its principal. The
    limits are calls, bytes_in and bytes_out per second, of the Thrift API and of a hub's port; hubs
    also have creations per hour, subscriptions and sessions: docs/quotas.md. By default there are
    none.
    """

    api_threads: int = 16
    """How many calls of the Thrift API to answer at a time."""

    api_connections_max: int = 1_024
    """How many connections to the Thrift API may be open at a time. Each further one replaces the
    oldest idle one.
    """

    api_idle_ms: int = 300_000
    """How long to keep an unused scanner of the Thrift API, and an idle connection to it."""

    scanners_max: int = 1_024
    """How many scanners of the Thrift API may be open at a time."""

    scanner_bytes_max: int = 1024 * 1024
    """About how many bytes a scanner fetches from HBase at a time, at least one batch; and how many
    bytes an answer may have, at least one message.
    """

    scanners_bytes_max: int = 128 * 1024 * 1024
    """About how many bytes all scanners may hold between calls. Beyond that, the scanners that were
    unused for the longest drop their bytes, and read again later.
    """
