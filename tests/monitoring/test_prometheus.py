"""The rules of alerts and the dashboard, on the programs that they are for: ``make
test-monitoring``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import hqueue
from hqueue import Message, Status, Subscription
from tests.monitoring.alerts import ALERTS
from tests.monitoring.expressions import plain
from tests.monitoring.panels import ROWS
from tests.monitoring.prometheus import RULES, program, scraping
from tests.monitoring.roles import free_port, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.prometheus


def promtool(*arguments: str) -> str:
    ended = subprocess.run(
        [program("promtool"), *arguments],
        cwd=RULES.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_promtool_accepts_the_rules() -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", RULES.name)


def test_each_alert_fires_when_it_must_and_keeps_quiet_else() -> None:
    assert "SUCCESS" in promtool("test", "rules", "hqueue.rules.test.yaml")


def test_prometheus_answers_what_the_dashboard_and_the_rules_ask(
    make_queue: Callable[..., hqueue.Queue],
    client: hqueue.Client,
    process_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    queue = make_queue(partitions=1)
    worker, hub = free_port(), free_port()
    push = {"HQUEUE_WORKER_METRICS_PORT": worker, "HQUEUE_WORKER_API_PORT": 0}
    serving = {
        "HQUEUE_HUB_METRICS_PORT": hub,
        "HQUEUE_HUB_PORT": 0,
        "HQUEUE_HUB_HOST": "127.0.0.1",
    }
    came: list[bytes] = []

    def listener(messages: object) -> Status:
        came.extend(message.value for message in messages)  # type: ignore[attr-defined]
        return Status.DONE

    with (
        running(
            "worker", "--host", "127.0.0.1",
            environment=process_environment, settings=push, port=worker,
        ),
        running("hub", queue.name, environment=process_environment, settings=serving, port=hub),
        scraping({"hqueue-worker": worker, "hqueue-hub": hub}, tmp_path) as prometheus,
        queue.subscriber(Subscription("s"), listener),
        hqueue.Consumer(queue.name, group="g", client=client) as consumer,
    ):  # fmt: skip
        queue.put([Message("t", b"1"), Message("t", b"2")])
        assert len(consumer.poll(60_000)) == 2
        consumer.commit()
        wait_for(lambda: came == [b"1", b"2"], "the messages came")
        for expression, value in {
            "sum(hqueue_delivered_messages_total)": "2",
            "sum(up)": "2",
            "min(hqueue_session_certain)": "1",
            'max(hqueue_group_members{group="g"})': "1",
        }.items():
            wait_for(
                lambda expression=expression, value=value: (
                    [each["value"][1] for each in prometheus.query(expression)] == [value]
                ),
                expression,
            )
        for panels in ROWS.values():
            for panel in panels:
                for expression in panel.queries.values():
                    prometheus.query(plain(expression))
        wait_for(
            lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"},
            "all rules are evaluated without an error",
        )
        assert [rule["name"] for rule in prometheus.rules()] == [alert.name for alert in ALERTS]
        firing = [rule["name"] for rule in prometheus.rules() if rule["state"] == "firing"]
        assert firing == []
