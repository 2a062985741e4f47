"""Requests and answers get lost on the way to the store: each put is still there once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import hqueue
from hqueue import Message, Outcome, StoreUnavailableError
from tests.support.backends import LossyWay
from tests.support.history import Seen, check, seen_by
from tests.support.proxy import Fate

pytestmark = pytest.mark.in_memory_first

MakeQueue = Callable[..., hqueue.Queue]


def by_chance(seed: int, weights: dict[Fate, float]) -> Callable[[str], Fate]:
    """Fates by chance. Thread-safe."""
    chance, lock = random.Random(seed), threading.Lock()
    rest = 1 - sum(weights.values())

    def fate(_: str) -> Fate:
        with lock:
            return chance.choices([*weights, Fate.PASS], [*weights.values(), rest])[0]

    return fate


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST, Fate.HOLD])
def test_a_put_that_loses_its_first_try_is_there_once(
    make_queue: MakeQueue, lossy: LossyWay, fate: Fate
) -> None:
    queue = make_queue()
    with lossy.connect() as client:
        behind = client.queue(queue.name)
        told = [Seen(0, int(behind.put(Message("t", b"0:0"))), "0:0")]
        tries = []

        def first_only(method: str) -> Fate:
            if method == "put_if_absent":
                tries.append(method)
                if len(tries) == 1:
                    return fate
            return Fate.PASS

        lossy.set_fate(first_only)
        told.append(Seen(0, int(behind.put(Message("t", b"0:1"))), "0:1"))
        told.append(Seen(0, int(behind.put(Message("t", b"0:2"))), "0:2"))
        assert len(tries) == (2 if fate is Fate.LOSE_ANSWER else 3), "it looks before it repeats"
        assert lossy.deliver() == (fate is Fate.HOLD), "the first try comes in after its repetition"
    check(told, seen_by(queue.scan()))
    assert queue.offsets()[0].count == 3


def test_hundreds_of_puts_under_every_kind_of_loss_are_each_there_once(
    make_queue: MakeQueue, lossy: LossyWay
) -> None:
    queue = make_queue(2)
    losses = {Fate.LOSE_ANSWER: 0.1, Fate.LOSE_REQUEST: 0.1, Fate.HOLD: 0.03}
    lossy.set_fate(by_chance(1, losses))
    with lossy.connect(gateway_retry_ms=1) as one, lossy.connect(gateway_retry_ms=1) as two:

        def write(writer: int) -> list[Seen]:
            behind = (one, two)[writer % 2].queue(queue.name)
            told = []
            for n in range(75):
                batch = [Message("t", b"%d:%d" % (writer, 2 * n + k)) for k in range(2)]
                ids = behind.put(batch, partition=(writer + n) % 2)
                for i, message in zip(ids, batch, strict=True):
                    told.append(Seen((writer + n) % 2, int(i), message.value.decode()))
                if n % 10 == 9:
                    lossy.deliver()
            return told

        with ThreadPoolExecutor(4) as pool:
            acknowledged = [seen for told in pool.map(write, range(4)) for seen in told]
        lossy.deliver()
        lossy = seen_by(one.queue(queue.name).scan(bytes_max=2_000))
    assert len(acknowledged) == 600
    check(acknowledged, seen_by(queue.scan()), lossy)


def test_a_producer_under_loss_keeps_its_order(make_queue: MakeQueue, lossy: LossyWay) -> None:
    queue = make_queue(2)
    lossy.set_fate(by_chance(2, {Fate.LOSE_ANSWER: 0.15, Fate.LOSE_REQUEST: 0.15}))
    with lossy.connect(gateway_retry_ms=1) as client:
        producer = client.queue(queue.name).producer(batch_messages_max=10)
        sent = [
            (n, producer.send(Message("t", b"0:%d" % n), partition=n % 2)) for n in range(1_000)
        ]
        assert producer.close()
    acknowledged = [Seen(n % 2, int(d.result(0)), f"0:{n}") for n, d in sent]
    check(acknowledged, seen_by(queue.scan()))


@pytest.mark.parametrize("options", [{}, {"merge_sorted": True}, {"topics": ["t"]}])
def test_scans_under_loss_are_complete(
    make_queue: MakeQueue, lossy: LossyWay, options: dict[str, object]
) -> None:
    queue = make_queue(2)
    for n in range(60):
        queue.put([Message("t", b"0:%d" % (2 * n + k)) for k in range(2)], partition=n % 2)
    lossy.set_fate(by_chance(3, {Fate.LOSE_ANSWER: 0.15, Fate.LOSE_REQUEST: 0.15}))
    with lossy.connect(gateway_retry_ms=1) as client:
        behind = client.queue(queue.name)
        seen = seen_by(behind.scan(bytes_max=900, **options))
        followed = seen_by(behind.scan(bytes_max=900, follow=True, idle_ms_max=1))
    check(seen_by(queue.scan()), seen, followed)


def test_a_follower_under_loss_sees_all_that_is_put(make_queue: MakeQueue, lossy: LossyWay) -> None:
    queue = make_queue(3)
    lossy.set_fate(by_chance(4, {Fate.LOSE_ANSWER: 0.1, Fate.LOSE_REQUEST: 0.1}))
    with lossy.connect(gateway_retry_ms=1) as client:
        with client.queue(queue.name).scan(follow=True, idle_ms_max=60_000) as follower:

            def write() -> list[Seen]:
                return [
                    Seen(
                        n % 3, int(queue.put(Message("t", b"0:%d" % n), partition=n % 3)), f"0:{n}"
                    )
                    for n in range(300)
                ]

            with ThreadPoolExecutor(1) as pool:
                written = pool.submit(write)
                followed = [m for _, m in zip(range(300), follower, strict=False)]
        check(written.result(), seen_by(followed))


class HiddenFate:
    """The fate of one put; requests before it pass, and those after it are lost."""

    def __init__(self, fate: Fate) -> None:
        self._fates = iter((fate,))
        self._sent = False

    def __call__(self, method: str) -> Fate:
        self._sent |= method == "put_if_absent"
        return next(self._fates, Fate.LOSE_REQUEST) if self._sent else Fate.PASS


@pytest.mark.thorough("waits for the bound itself, 18 s")
def test_a_put_whose_fate_stays_hidden_fails_with_an_unknown_outcome_in_time(
    make_queue: MakeQueue, lossy: LossyWay
) -> None:
    queue = make_queue()
    with lossy.connect(request_timeout_ms=2_000, operation_timeout_ms=6_000) as client:
        behind = client.queue(queue.name)
        told = []
        for n, fate in ((1, Fate.LOSE_ANSWER), (3, Fate.HOLD), (5, Fate.HANG)):
            told.append(Seen(0, int(behind.put(Message("t", b"0:%d" % (n - 1)))), f"0:{n - 1}"))
            # The put itself goes on to the gateway, sooner or later; nothing reports it. What
            # comes before it passes: on a busy machine the end of the log may be read again.
            lossy.set_fate(HiddenFate(fate))
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError) as caught:
                behind.put(Message("t", b"0:%d" % n))
            assert caught.value.outcome is Outcome.UNKNOWN
            assert 5 < time.monotonic() - began < 60
            lossy.set_fate(lambda _: Fate.PASS)
        in_doubt = {f"0:{n}" for n in (1, 3, 5)}
        lossy.deliver()
        told.append(Seen(0, int(behind.put(Message("t", b"0:9"))), "0:9"))
    read = seen_by(queue.scan())
    check(told, read, in_doubt=in_doubt)
    assert "0:1" in {seen.value for seen in read}, "this one was applied"


def test_a_put_that_was_never_sent_fails_with_not_applied(
    make_queue: MakeQueue, lossy: LossyWay
) -> None:
    queue = make_queue()
    with lossy.connect(request_timeout_ms=1_500, operation_timeout_ms=4_000) as client:
        fresh = client.queue(queue.name)
        stale = client.queue(queue.name)
        stale.put(Message("t", b"0:0"))
        lossy.set_fate(lambda _: Fate.HANG)
        # The one is to measure its clock first, the other to read the end of the log: its
        # knowledge is older than a second, for the first put took longer.
        for behind in (fresh, stale):
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError) as caught:
                behind.put(Message("t", b"0:1"))
            assert caught.value.outcome is Outcome.NOT_APPLIED
            assert time.monotonic() - began < 30
    assert [seen.value for seen in seen_by(queue.scan())] == ["0:0"]


@pytest.mark.parametrize("options", [{}, {"merge_sorted": True}, {"follow": True}])
def test_a_scan_that_failed_says_so_again_instead_of_ending(
    make_queue: MakeQueue, lossy: LossyWay, options: dict[str, object]
) -> None:
    queue = make_queue(2)
    for n in range(20):
        queue.put(Message("t", b"0:%d" % n), partition=n % 2)
    with lossy.connect(request_timeout_ms=300, operation_timeout_ms=600) as client:
        scanner = client.queue(queue.name).scan(bytes_max=1, **options)
        assert scanner.next() is not None
        lossy.set_fate(lambda _: Fate.LOSE_REQUEST)
        with pytest.raises(StoreUnavailableError):
            list(scanner)
        lossy.set_fate(lambda _: Fate.PASS)
        for again in (scanner.next, lambda: next(iter(scanner)), lambda: list(scanner)):
            with pytest.raises(StoreUnavailableError):
                again()  # type: ignore[operator]


def test_what_a_failed_scan_gave_and_what_is_read_from_its_positions_is_the_whole(
    make_queue: MakeQueue, lossy: LossyWay
) -> None:
    queue = make_queue(3)
    for n in range(60):
        queue.put(Message("t", b"0:%d" % n), partition=n % 3)
    with lossy.connect(request_timeout_ms=300, operation_timeout_ms=400) as client:
        scanner = client.queue(queue.name).scan(bytes_max=1, follow=True)
        read = [scanner.next() for _ in range(25)]
        lossy.set_fate(lambda _: Fate.LOSE_REQUEST)
        with pytest.raises(StoreUnavailableError):
            read.extend(scanner)
    rest = {p: hqueue.Scan(start) for p, start in scanner.positions().items()}
    again = queue.combined_partition_scanner(rest)
    check(seen_by(queue.scan()), seen_by([*(m for m in read if m), *again]))


def test_puts_go_on_while_administration_hangs(
    make_queue: MakeQueue, lossy: LossyWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Collection asks for the TTL, and HBase's master answers that. Puts need no master.
    monkeypatch.setattr("hqueue.produce.header_reaper.EVERY_MS", 0)
    queue = make_queue(2)
    with lossy.connect(operation_timeout_ms=60_000) as client:
        behind = client.queue(queue.name)
        behind.put(Message("t", b"0:0"))
        lossy.set_fate(lambda m: Fate.HANG if m == "describe" else Fate.PASS)
        began = time.monotonic()
        for n in range(1, 50):
            behind.put(Message("t", b"0:%d" % n), partition=n % 2)
        assert time.monotonic() - began < 55
