"""The work queues that share groups are compared with: Kafka's share groups, RabbitMQ's quorum
queues, and a table of PostgreSQL.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .kafka.broker import running_broker
from .rival_servers import running_postgres, running_rabbitmq
from .share_kafka import KafkaShares

__all__ = ["Rivals", "running_rivals"]

WAIT_S = 120.0
NAME = "bench_jobs"
QUORUM = {"x-queue-type": "quorum"}


@contextlib.contextmanager
def running_rivals() -> Iterator[Rivals]:
    """All systems, with servers of their own that are ended afterwards: no process is left."""
    with (
        tempfile.TemporaryDirectory(prefix="hqueue-bench-") as folder,
        contextlib.ExitStack() as stack,
    ):
        Path(folder).chmod(0o711)  # The database's server may have another user.
        folders = [Path(folder, name) for name in ("rabbitmq", "postgres", "kafka")]
        for each in folders:
            each.mkdir()
        broker = stack.enter_context(running_rabbitmq(folders[0]))
        database = stack.enter_context(running_postgres(folders[1]))
        yield Rivals(broker, database, stack.enter_context(running_broker(folders[2])).address)


class Rivals:
    """The other systems, and how they are filled.

    Args:
        rabbitmq: the broker's URL.
        postgres: the database's address.
        kafka: the broker's address.
    """

    def __init__(self, rabbitmq: str, postgres: str, kafka: str) -> None:
        import pika  # noqa: PLC0415 - Only this case needs them.
        import psycopg  # noqa: PLC0415

        self.kafka = KafkaShares(kafka)
        self._addresses = {"rabbitmq": rabbitmq, "postgres": postgres}
        self._broker = partial(pika.BlockingConnection, pika.URLParameters(rabbitmq))
        self._properties = pika.BasicProperties(delivery_mode=2)
        self._database = partial(psycopg.connect, postgres, autocommit=True)

    def given(self, system: str) -> dict[str, str]:
        """What a consumer is made of."""
        return {"system": system, "address": self._addresses[system], "queue": NAME}

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel to the broker, with an empty quorum queue."""
        with self._broker() as connection:
            channel = connection.channel()
            channel.queue_declare(NAME, durable=True, arguments=QUORUM)
            channel.queue_purge(NAME)
            yield channel

    def send(self, channel: Any, value: bytes) -> None:
        """Send a message that outlives a restart."""
        channel.basic_publish("", NAME, value, self._properties)

    def fill(self, system: str, values: Sequence[bytes]) -> None:
        """Have just these in a system's queue."""
        (self._fill_queue if system == "rabbitmq" else self._fill_table)(values)

    def left(self, system: str) -> int:
        """How many a system's queue has."""
        if system == "rabbitmq":
            with self._broker() as connection:
                return _waiting(connection.channel())
        with self._database() as connection:
            count: int = connection.execute(f"SELECT count(*) FROM {NAME}").fetchone()[0]
            return count

    def _fill_queue(self, values: Sequence[bytes]) -> None:
        with self.channel() as channel:
            for value in values:
                self.send(channel, value)
            ends_s = time.monotonic() + WAIT_S
            while _waiting(channel) < len(values):
                if time.monotonic() > ends_s:
                    raise TimeoutError("RabbitMQ did not take all messages")
                time.sleep(0.01)

    def _fill_table(self, values: Sequence[bytes]) -> None:
        with self._database() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {NAME}")
            connection.execute(
                f"CREATE TABLE {NAME} (id bigserial PRIMARY KEY, value bytea NOT NULL)"
            )
            with connection.cursor().copy(f"COPY {NAME} (value) FROM STDIN") as copy:
                for value in values:
                    copy.write_row((value,))
            connection.execute(f"ANALYZE {NAME}")


def _waiting(channel: Any) -> int:
    count: int = channel.queue_declare(NAME, passive=True).method.message_count
    return count
