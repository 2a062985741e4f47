"""Asks a cluster's masters for its ID before this client has proved itself.

The question is ``Regist``, in the place of the preamble: servers of HBase 2.6 and later answer with
a frame that has the ID, and close the connection. Older ones refuse the question.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from google.protobuf.message import DecodeError

from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.wire import (
    LENGTH,
    REGISTRY,
    SAID_BYTES_MAX,
    WHICH_CLUSTER,
    RemoteError,
    read_answer,
)
from hqueue.net.refusals import RefusedError
from hqueue.net.security import client_contexts
from hqueue.net.talking import Talk, Talking, talk_in_thread
from hqueue.net.tls import Tls
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.loop import blocking
from hqueue.runtime.sockets import open_connection
from hqueue.runtime.steps import Work
from hqueue.settings.addresses import Address
from hqueue.settings.connection import Settings

__all__ = ["ClusterQuestion"]


class _CannotSayError(ConnectionError):
    """The server does not know the question."""


class ClusterQuestion:
    """Asks the masters, one after the other, until one names the cluster. Thread-safe. Nobody has
    proven the answer; a token that is chosen by it proves both sides to each other.

    Args:
        settings: the masters, the bounds, and whether they speak TLS.
        route: where servers are reached: a `Route`.
    """

    def __init__(self, settings: Settings, route: Any) -> None:
        self._settings = settings
        self._route = route
        self._tls = client_contexts(settings, "hbase_tls") if settings.hbase_tls else None
        self._known: str | None = None

    def ask(self) -> Work[Any, str]:
        """Return the cluster's ID. Bounded by ``connect_timeout_ms``.

        Raises:
            RefusedError: no master knows the question.
            OSError: no master answers.
        """
        if self._known is None:
            self._known = yield blocking(self._ask_all)
        return self._known

    def _ask_all(self) -> str:
        masters = self._settings.hbase_masters
        ends_s = time.monotonic() + self._settings.connect_timeout_ms / 1e3
        failures: list[OSError] = []
        for number, master in enumerate(masters):
            left_s = max(0.001, (ends_s - time.monotonic()) / (len(masters) - number))
            try:
                return self._ask_one(master, left_s)
            except OSError as exc:
                if is_interruption(exc):
                    raise
                failures.append(exc)
        passing = [each for each in failures if not isinstance(each, _CannotSayError)]
        if passing:
            raise passing[-1]
        raise RefusedError(
            "there are delegation tokens of several clusters, and these masters can't say which "
            "cluster theirs is (HBase can from 2.6 on): leave hbase_masters out, so that ZooKeeper "
            "names the cluster, or give a file with one token",
            masters=[str(master) for master in masters],
        )

    def _ask_one(self, master: Address, timeout_s: float) -> str:
        ends_s = time.monotonic() + timeout_s
        opened = open_connection(self._route(master, REGISTRY), timeout_s)
        with contextlib.closing(opened):
            return talk_in_thread(self._talk(master), opened, ends_s)

    def _talk(self, master: Address) -> Talking[str]:
        talk = Talk()
        if self._tls is not None:
            yield from talk.start_tls(Tls(self._tls.current(), master.host, self._tls.switch))
        talk.say(WHICH_CLUSTER)
        try:
            (size,) = LENGTH.unpack((yield from talk.hear(LENGTH.size)))
            if not 0 < size <= SAID_BYTES_MAX:
                raise ValueError("the answer's length is impossible")
            frame: bytes = yield from talk.hear(size)
            _, said = read_answer(bytearray(frame))
            if isinstance(said, RemoteError):
                raise _CannotSayError(f"the server does not say which cluster it is: {said.kind}")
            found = str(pb.GetClusterIdResponse.FromString(said.message).cluster_id)
        except RefusedError:
            raise
        except (ConnectionError, DecodeError, ValueError) as exc:
            if is_interruption(exc):
                raise
            raise _CannotSayError(f"the server does not say which cluster it is: {exc}") from exc
        if not found:
            raise _CannotSayError("the server does not say which cluster it is")
        return found
