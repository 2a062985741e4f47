"""Push in the demo: a worker that delivers what is put to a listener, while it is put."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hqueue.cli.demo.tally import Reading
from hqueue.errors import SettingsError
from hqueue.push.subscription import Subscription
from hqueue.runtime.extras import installing

if TYPE_CHECKING:
    from hqueue.message import ReceivedMessage
    from hqueue.queue import Queue
    from hqueue.settings.connection import Settings

__all__ = ["Delivered", "check_worker"]

SUBSCRIBER = "demo"
END_S = 20.0


def check_worker() -> None:
    """Check that the packages that a worker needs are installed.

    Raises:
        SettingsError: a package is missing.
    """
    for needed in ("hqueue_workers", "prometheus_client"):
        if importlib.util.find_spec(needed) is None:
            raise SettingsError(
                "a package that the demo's worker needs is not installed, and nothing was started: "
                f"{installing('worker')}",
                missing=needed,
            )


class Delivered(Reading):
    """What a worker of its own process delivers to a listener here.

    A message that comes again, for that is allowed, counts once.

    Args:
        queue: the queue; it is delivered from its beginning on.
        settings: where the servers are.
    """

    def __init__(self, queue: Queue, settings: Settings) -> None:
        super().__init__(queue)
        servers = [
            f"--hbase={settings.hbase}",
            *_listed("--hbase-masters", settings.hbase_masters),
            *_listed("--gateways", settings.gateways),
            f"--zookeeper={settings.zookeeper}",
            f"--zookeeper-root={settings.zookeeper_root}",
        ]
        here = ["--host=127.0.0.1", "--metrics-port=0"]
        self._subscriber = queue.subscriber(Subscription(SUBSCRIBER), self._listen)
        self._subscriber.start()
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "hqueue.cli", *servers, "worker", *here]
        )

    def close(self) -> None:
        """End the subscriber, and then the worker."""
        self._subscriber.stop()
        self._worker.terminate()
        try:
            self._worker.wait(END_S)
        except subprocess.TimeoutExpired:
            self._worker.kill()
            self._worker.wait()

    def _listen(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            last = self.tally.last[message.partition]
            if last is None or message.id > last:
                self.take(message)


def _listed(option: str, addresses: Sequence[object]) -> list[str]:
    """An option with addresses; no option if there are none."""
    return [f"{option}={','.join(map(str, addresses))}"] if addresses else []
