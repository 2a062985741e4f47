"""A process that ends in a certain way, with a producer that nobody closes: ``end.py <ending>
<queue>``.

It sends the values 0 to 99 of topic ``t``, none of which is written before the end begins. Where
the ending itself sends something, that has other topics. It runs on every version of Python that
the library supports.
"""

# ruff: noqa: PLC0415  (some import the library late, and a child finds the functions by their names)

from __future__ import annotations

import atexit
import concurrent.futures
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

SENT = 100
CODE = 7
FOR_LONG_S = 120.0
QUEUE = sys.argv[2] if len(sys.argv) > 2 else ""  # A child has other arguments.

kept: list[Any] = []
"""What the program has until its end."""


def send(queue: str = QUEUE) -> Any:
    import hqueue

    producer = hqueue.connect().queue(queue).producer(linger_ms=60_000)
    kept.append(producer)
    for n in range(SENT):
        producer.send(hqueue.Message("t", b"%d" % n))
    return producer


def send_in_a_thread(queue: str) -> None:
    """Send with a producer that is there before its process ends, and by a thread that ends later,
    with another one that it makes then.
    """
    import hqueue

    client = hqueue.connect()
    producer = client.queue(queue).producer(linger_ms=60_000)
    main_ended = threading.Event()

    def run() -> None:
        main_ended.wait()
        time.sleep(0.3)  # Nothing says when the main thread has begun to end.
        for n in range(SENT // 2):
            producer.send(hqueue.Message("t", b"%d" % n))
        kept.append(hqueue.connect().queue(queue).producer(linger_ms=60_000))
        for n in range(SENT // 2, SENT):
            kept[-1].send(hqueue.Message("t", b"%d" % n))

    threading.Thread(target=run).start()
    main_ended.set()


# Endings.


def script() -> None:
    send()


def client_used_before() -> None:
    import hqueue

    client = hqueue.connect()
    client.queue(QUEUE).put(hqueue.Message("before", b""))
    send()


def error() -> None:
    send()
    raise RuntimeError("this program ends by an error")


def sys_exit() -> None:
    send()
    sys.exit(CODE)


def handled_signal() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(CODE))
    send()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(FOR_LONG_S)


def signal_without_handler() -> None:
    import hqueue

    producer = send()
    assert producer.flush()
    producer.send(hqueue.Message("lost", b""))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(FOR_LONG_S)


def daemon_thread() -> None:
    """What the thread has sent when `send` returned is written; it says so after each."""
    import hqueue

    producer = send()
    begun = threading.Event()

    def run() -> None:
        for n in range(10**9):
            producer.send(hqueue.Message("daemon", b"%d" % n))
            os.write(1, b"%d\n" % n)
            begun.set()

    threading.Thread(target=run, daemon=True).start()
    begun.wait()


def late_thread() -> None:
    send_in_a_thread(QUEUE)


def first_used_in_a_late_thread() -> None:
    """The main thread has ended before anything of the library is loaded."""

    def run() -> None:
        threading.main_thread().join()
        send()

    threading.Thread(target=run).start()


def first_used_by_an_exit_handler() -> None:
    """The library's own handler of `atexit` comes too late to be called."""
    atexit.register(send)


def exit_handlers() -> None:
    """Handlers of `atexit` that come before and after the library's own use everything."""
    from hqueue import Message, connect

    producer = send()
    queue = connect().queue(QUEUE)

    def use() -> None:
        for each in (queue, connect().queue(QUEUE)):
            each.put(Message("handler", b"put"))
            each.put([Message("handler", b"put")] * 3)
            with each.producer() as own:
                own.send(Message("handler", b"sent"))
            producer.send(Message("handler", b"sent"))
            assert len(list(each.scan())) >= 5
            assert each.offsets()

    kept.append(use)  # By the other handler, which was registered first.
    atexit.register(use)


def use_kept() -> None:
    kept[-1]()


def os_fork() -> None:
    if os.fork():
        assert os.wait()[1] == 0
        os._exit(0)
    send()


def commits(queue: str = QUEUE) -> None:
    """Commit each message that was handed out, and wait for none of the commits."""
    import hqueue

    consumer = hqueue.Consumer(queue, group=queue)
    kept.append(consumer)
    while len(kept) <= SENT:
        for message in consumer.poll(1_000):
            kept.append(message)
            consumer.commit_async(message)


def committing_child() -> None:
    child("fork", commits)


def child(method: str, target: Callable[..., object]) -> None:
    process = multiprocessing.get_context(method).Process(target=target, args=(QUEUE,))
    process.start()
    process.join()
    assert process.exitcode == 0


def forked_child() -> None:
    child("fork", send)


def served_child() -> None:
    child("forkserver", send)


def spawned_child() -> None:
    child("spawn", send)


def child_with_a_thread() -> None:
    child("fork", send_in_a_thread)


def pool() -> None:
    with multiprocessing.get_context("fork").Pool(1) as workers:
        workers.apply(send_and_return, (QUEUE,))
        workers.close()
        workers.join()


def executor() -> None:
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as workers:
        workers.submit(send_and_return, QUEUE).result()


def send_and_return(queue: str) -> None:
    send(queue)


if __name__ == "__main__":
    if sys.argv[1] == "exit_handlers":  # Registered before the library's, it is called after it.
        atexit.register(use_kept)
    globals()[sys.argv[1]]()
