"""A shop's cluster in memory, after half an hour of its work: pages of a console have something to
show, with times and rates as they would be.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator
from unittest import mock

import hqueue
from hqueue import Consumer, DeadLetter, Message
from hqueue.runtime.clock import SYSTEM_CLOCK, SystemClock
from hqueue_workers.console import history
from hqueue_workers.console.history import SIZE
from tests.support.backends import MemoryBackend
from tests.support.console import RunningConsole, running_console
from tests.support.waiting import wait_for

__all__ = ["Shop", "open_shop", "shop_console"]

ROUNDS, ROUND_MS = 40, 45_000
ITEMS = ("espresso machine", "kettle", "grinder", "filter papers", "milk jug", "scales", "cup")
REASONS = ("ValueError: no such customer", "ConnectionError: the archive closed the connection")


class ShopClock:
    """The time in the shop: that of this machine, behind until the shop has caught up."""

    def __init__(self) -> None:
        self.behind_ms = ROUNDS * ROUND_MS + 20_000

    def pass_ms(self, duration_ms: float) -> None:
        self.behind_ms = max(0, self.behind_ms - int(duration_ms))

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 - self.behind_ms

    def monotonic_ms(self) -> float:
        return SYSTEM_CLOCK.monotonic_ms() - self.behind_ms

    def rules(self) -> contextlib.AbstractContextManager[object]:
        """Let this process have the shop's time. A clock of its own would be stepped, not slept by:
        event loops would stand still.
        """

        def wall_ms(clock: SystemClock) -> int:
            return self.wall_ms()

        return mock.patch.object(SystemClock, "wall_ms", wall_ms)


class Shop:
    """The shop, and its clock."""

    def __init__(self, client: hqueue.Client, clock: ShopClock) -> None:
        self.client = client
        self.clock = clock
        self._orders = 0

    def order(self, queue: hqueue.Queue, topic: str = "sales") -> None:
        """Put an order. One of nine customers tries to put markup into pages."""
        number = self._orders
        self._orders += 1
        customer = f"customer-{number % 9}"
        value = {
            "order": 10_400 + number,
            "customer": customer,
            "item": ITEMS[number % len(ITEMS)],
            "total": round(4.9 + number * 37 % 240, 2),
        }
        if number % 9 == 7:
            value["note"] = "<img src=x>"
        trace = ("traceparent", b"00-%032x-%016x-01" % (number + 1, number + 1))
        queue.put(Message(topic, json.dumps(value).encode(), customer.encode(), [trace]))

    def work(self, console: RunningConsole, shipping: Consumer) -> None:
        """Do the work of half an hour. The console measures after each round."""
        client, clock = self.client, self.clock
        with (
            clock.rules(),
            client.queue("orders") as orders,
            client.queue("clicks") as clicks,
            client.queue("invoices") as invoices,
            Consumer("orders", group="billing", client=client) as billing,
        ):
            for round_ in range(ROUNDS):
                count = int(9 + 6 * math.sin(round_ / 6) + round_ * 7 % 4)
                for number in range(count):
                    clock.pass_ms(ROUND_MS / count)
                    self.order(orders, "sales" if number % 8 else "returns")
                for partition in range(clicks.partitions):
                    page = b'{"page": "/items/%d"}' % (round_ % len(ITEMS))
                    clicks.put([Message("views", page)] * (20 + count * 3), partition=partition)
                for number in range(round_ % 4):
                    invoices.put(Message("pdf", b"%%PDF-1.7 invoice %d.%d" % (round_, number)))
                for consumer, rounds in ((billing, 5), (shipping, 3)):
                    if round_ % rounds:
                        consume(consumer)
                console.measure()
            clock.behind_ms = 0


def consume(consumer: Consumer) -> None:
    """Consume what comes at once; it may leave some."""
    while consumer.poll(50):
        pass
    consumer.commit()


@contextlib.contextmanager
def open_shop() -> Iterator[Shop]:
    """A shop with its queues, a group, and a subscriber that has dead letters."""
    clock = ShopClock()
    with MemoryBackend().connect() as client:
        shop = Shop(client, clock)
        for name, partitions in (("orders", 3), ("clicks", 8), ("invoices", 1)):
            client.create_queue(name, partitions=partitions, ttl="7d").close()
        with clock.rules(), client.queue("orders") as queue:
            client.add_subscriber("orders", "archive")
            for _ in range(4):
                clock.pass_ms(1_300)
                shop.order(queue)
            clock.pass_ms(9_000)
            queue.dead_letters.put(
                DeadLetter(each, "archive", REASONS[number % len(REASONS)], attempts=3)
                for number, each in enumerate([*queue.scan()])
            )
        yield shop


@contextlib.contextmanager
def shop_console(shop: Shop) -> Iterator[RunningConsole]:
    """A console over a shop, which may make changes. The shop has done its work."""
    with (
        mock.patch.object(history, "SYSTEM_CLOCK", shop.clock),
        running_console(shop.client, allow_changes=True) as running,
    ):
        for queue in ("orders", "clicks", "invoices"):
            wait_for(lambda queue=queue: running.console.history.series(SIZE, queue), "measured")
        with Consumer("orders", group="shipping", client=shop.client) as shipping:
            shop.work(running, shipping)
            yield running
