"""Variables that Kubernetes makes, in every pod, of a Service whose name begins with ``hqueue``.

Of a Service ``hqueue-worker`` with a port 2181: ``HQUEUE_WORKER_SERVICE_HOST``,
``HQUEUE_WORKER_SERVICE_PORT``, ``HQUEUE_WORKER_SERVICE_PORT_<its name>``,
``HQUEUE_WORKER_PORT=tcp://10.0.0.1:2181`` and ``HQUEUE_WORKER_PORT_2181_TCP``, the last also with
``_PROTO``, ``_PORT`` and ``_ADDR``. They are not settings, though some have the names of settings.
"""

from __future__ import annotations

import re

__all__ = ["is_service_link"]

_NAME = re.compile(
    r".*_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|.*_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_LINK = re.compile(r"(tcp|udp|sctp)://\S+:[0-9]+")


def is_service_link(name: str, value: str) -> bool:
    """Whether a variable is one that Kubernetes makes of a Service."""
    if name.endswith("_PORT") and _LINK.fullmatch(value):
        return True
    return _NAME.fullmatch(name) is not None
