"""Roles expose the metrics of the list, and no other."""

from __future__ import annotations

from collections.abc import Callable

import hqueue
from hqueue import Message
from hqueue.metrics import metrics_of
from tests.acceptance.commands import Running
from tests.monitoring.roles import exposed, free_port, page, running
from tests.support.waiting import wait_for


def listed(*roles: str) -> dict[str, tuple[str, str]]:
    return {each.exposed: (each.kind, each.help) for each in metrics_of(roles)}


def test_each_role_exposes_the_metrics_of_the_list_and_no_other(
    make_queue: Callable[..., hqueue.Queue], process_environment: dict[str, str]
) -> None:
    queue = make_queue(partitions=1)
    worker, hub, console = free_port(), free_port(), free_port()
    push = {"HQUEUE_WORKER_METRICS_PORT": worker, "HQUEUE_WORKER_API_PORT": 0}
    serving = {
        "HQUEUE_HUB_METRICS_PORT": hub,
        "HQUEUE_HUB_PORT": 0,
        "HQUEUE_HUB_HOST": "127.0.0.1",
    }
    browsing = {"HQUEUE_CONSOLE_METRICS_PORT": console, "HQUEUE_CONSOLE_PORT": 0}
    with (
        running(
            "worker", "--host", "127.0.0.1",
            environment=process_environment, settings=push, port=worker,
        ),
        running(
            "hub", queue.name, environment=process_environment, settings=serving, port=hub
        ),
        running(
            "console", environment=process_environment, settings=browsing, port=console
        ),
    ):  # fmt: skip
        assert exposed(worker) == listed("worker", "api")
        assert exposed(hub) == listed("hub")
        assert exposed(console) == listed("console")


def test_hqueue_work_exposes_the_metrics_of_the_list_and_no_other(
    make_queue: Callable[..., hqueue.Queue], process_environment: dict[str, str]
) -> None:
    queue, port = make_queue(partitions=1), free_port()
    queue.put([Message("t", b"1"), Message("t", b"2")])
    work = Running(
        ("work", queue.name, "-g", queue.name, "--metrics-port", str(port), "--", "true"),
        process_environment,
    )
    try:
        labels = f'group="{queue.name}",queue="{queue.name}",result="done"'
        done = f"hqueue_work_processes_total{{{labels}}} 2.0"
        wait_for(lambda: done in page(port, "/metrics")[1], "both processes are counted")
        assert exposed(port) == listed("client", "work")
        assert page(port, "/elsewhere")[0] == 404
        work.terminate()
        assert work.end().code == 0
    finally:
        work.kill()
