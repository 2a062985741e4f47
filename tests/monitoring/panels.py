"""The panels of the dashboard: which expression each shows."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ROWS", "Panel"]

QUEUE = 'queue=~"$queue"'
RATE = "[$__rate_interval]"


class Panel(NamedTuple):
    """A panel.

    Args:
        title: the title.
        unit: Grafana's name of the unit.
        queries: expressions by their legends.
        text: what the panel shows, for its information sign.
        kind: Grafana's kind of panel.
    """

    title: str
    unit: str
    queries: dict[str, str]
    text: str = ""
    kind: str = "timeseries"


def _rate(name: str, by: str, matched: str = "") -> str:
    return f"sum by ({by}) (rate({name}{{{matched}}}{RATE}))"


def _quantile(name: str, quantile: float, by: str = "", matched: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return (
        f"histogram_quantile({quantile}, sum by ({labels}) "
        f"(rate({name}_bucket{{{matched}}}{RATE})))"
    )


def _quantiles(name: str, matched: str = "") -> dict[str, str]:
    shown = {"median": 0.5, "95 %": 0.95, "99 %": 0.99}
    return {legend: _quantile(name, each, matched=matched) for legend, each in shown.items()}


ROWS: dict[str, list[Panel]] = {
    "Overview": [
        Panel(
            "Processes", "short", {"{{job}}": 'sum by (job) (up{job=~".*hqueue.*"})'}, kind="stat"
        ),
        Panel(
            "Without a session",
            "short",
            {"processes": "count(hqueue_session_certain == 0) or vector(0)"},
            "Processes that may not act now.",
            "stat",
        ),
        Panel(
            "Oldest message not delivered",
            "s",
            {
                "push": f"max(hqueue_lag_seconds{{{QUEUE}}})",
                "groups": f"max(hqueue_group_lag_seconds{{{QUEUE}}})",
                "hubs": f"max(hqueue_hub_lag_seconds{{{QUEUE}}})",
            },
            kind="stat",
        ),
        Panel(
            "Versions",
            "short",
            {"{{version}}": "count by (version) (hqueue_build_info)"},
            kind="stat",
        ),
    ],
    "Push": [
        Panel(
            "Delivered",
            "cps",
            {
                "{{queue}} {{subscriber}}": _rate(
                    "hqueue_delivered_messages_total", "queue, subscriber", QUEUE
                )
            },
        ),
        Panel(
            "Lag",
            "short",
            {
                "{{queue}} {{subscriber}}": (
                    f"sum by (queue, subscriber) (hqueue_lag_messages{{{QUEUE}}})"
                )
            },
        ),
        Panel(
            "Age of the oldest message",
            "s",
            {
                "{{queue}} {{subscriber}}": (
                    f"max by (queue, subscriber) (hqueue_lag_seconds{{{QUEUE}}})"
                )
            },
        ),
        Panel(
            "From the write to the answer",
            "s",
            _quantiles("hqueue_delivery_latency_seconds", QUEUE),
        ),
        Panel(
            "Retried, rejected, dead",
            "cps",
            {
                "retried {{subscriber}}": _rate(
                    "hqueue_retried_messages_total", "subscriber", QUEUE
                ),
                "rejected {{subscriber}}": _rate(
                    "hqueue_rejected_messages_total", "subscriber", QUEUE
                ),
                "dead letters {{subscriber}}": _rate(
                    "hqueue_dead_letters_total", "subscriber", QUEUE
                ),
            },
        ),
        Panel(
            "Calls without an answer",
            "cps",
            {
                "unanswered {{subscriber}}": _rate(
                    "hqueue_unanswered_calls_total", "subscriber", QUEUE
                ),
                "halved {{subscriber}}": _rate("hqueue_halved_calls_total", "subscriber", QUEUE),
            },
        ),
        Panel("Partitions of each worker", "short", {"{{instance}}": "hqueue_partitions_claimed"}),
        Panel(
            "Append notifications",
            "cps",
            {
                "authenticated {{authenticated}}": _rate(
                    "hqueue_append_notifications_total", "authenticated"
                )
            },
        ),
    ],
    "Groups": [
        Panel("Consumers", "short", {"{{group}}": "max by (group) (hqueue_group_members)"}),
        Panel(
            "Lag",
            "short",
            {
                "{{queue}} {{group}}": (
                    "sum by (queue, group) (max by (queue, partition, group) "
                    f"(hqueue_group_lag_messages{{{QUEUE}}}))"
                )
            },
        ),
        Panel(
            "Age of the oldest message",
            "s",
            {
                "{{queue}} {{group}}": (
                    f"max by (queue, group) (hqueue_group_lag_seconds{{{QUEUE}}})"
                )
            },
        ),
        Panel(
            "Messages of share groups",
            "short",
            {
                f"{{{{group}}}} {state}": (
                    "sum by (group) (max by (queue, partition, group) "
                    f"(hqueue_share_group_{state}_messages{{{QUEUE}}}))"
                )
                for state in ("acquired", "redelivered", "released", "delayed")
            },
        ),
        Panel(
            "Age of the oldest held message",
            "s",
            {
                "{{queue}} {{group}}": (
                    f"max by (queue, group) (hqueue_share_group_acquired_seconds{{{QUEUE}}})"
                )
            },
        ),
        Panel(
            "Dead letters of share groups",
            "short",
            {
                "{{group}} {{reason}}": (
                    "sum by (group, reason) (max by (queue, partition, group, reason) "
                    f"(increase(hqueue_share_group_rejected_messages_total{{{QUEUE}}}{RATE})))"
                )
            },
        ),
    ],
    "Hubs": [
        Panel(
            "Published and delivered",
            "cps",
            {
                "published {{instance}}": _rate("hqueue_hub_published_messages_total", "instance"),
                "delivered {{instance}}": _rate("hqueue_hub_delivered_messages_total", "instance"),
            },
        ),
        Panel("From a publish to the log", "s", _quantiles("hqueue_hub_publish_latency_seconds")),
        Panel(
            "Appends and failed publishes",
            "cps",
            {
                "appends {{instance}}": _rate("hqueue_hub_appends_total", "instance"),
                "failed {{instance}}": _rate("hqueue_hub_failed_publishes_total", "instance"),
            },
        ),
        Panel("Bytes that wait", "bytes", {"{{instance}}": "hqueue_hub_pending_bytes"}),
        Panel(
            "Topics",
            "short",
            {"{{queue}} {{instance}}": f"hqueue_hub_topics{{{QUEUE}}}"},
        ),
        Panel(
            "Partitions and subscriptions",
            "short",
            {
                "partitions {{instance}}": (
                    f"sum by (instance) (hqueue_hub_partitions{{{QUEUE}}})"
                ),
                "subscriptions {{instance}}": (
                    f"sum by (instance) (hqueue_hub_subscriptions{{{QUEUE}}})"
                ),
            },
        ),
        Panel(
            "Topics taken over, fenced, redirected",
            "cps",
            {
                "taken over {{instance}}": _rate("hqueue_hub_takeovers_total", "instance"),
                "fenced {{instance}}": _rate("hqueue_hub_fenced_topics_total", "instance"),
                "redirects {{instance}}": _rate("hqueue_hub_redirects_total", "instance"),
            },
        ),
        Panel(
            "The ten subscriptions that are most behind",
            "short",
            {"{{topic}} {{subscriber}}": f"topk(10, hqueue_hub_lag_messages{{{QUEUE}}})"},
        ),
        Panel(
            "Deliveries that did not end well",
            "cps",
            {
                f"{name} {{{{instance}}}}": _rate(f"hqueue_hub_{metric}_total", "instance")
                for name, metric in {
                    "retried": "retried_messages",
                    "rejected": "rejected_messages",
                    "dropped": "dropped_messages",
                    "dead letters": "dead_letters",
                    "unanswered": "unanswered_calls",
                    "halved": "halved_calls",
                }.items()
            },
        ),
    ],
    "Thrift API": [
        Panel(
            "Calls",
            "cps",
            {"{{method}} {{result}}": _rate("hqueue_api_calls_total", "method, result")},
        ),
        Panel(
            "Time of a call, 99 %",
            "s",
            {"{{method}}": _quantile("hqueue_api_call_seconds", 0.99, "method")},
        ),
        Panel(
            "Scanners",
            "short",
            {
                "open {{instance}}": "hqueue_api_scanners",
                "expired a second {{instance}}": _rate(
                    "hqueue_api_scanners_expired_total", "instance"
                ),
            },
        ),
        Panel("Bytes of scanners", "bytes", {"{{instance}}": "hqueue_api_scanners_bytes"}),
    ],
    "Console": [
        Panel(
            "Requests",
            "reqps",
            {
                "{{status}}": _rate("hqueue_console_requests_total", "status"),
                "refused {{status}}": _rate("hqueue_console_refused_requests_total", "status"),
            },
        ),
        Panel(
            "Time of a request, 95 %",
            "s",
            {"{{page}}": _quantile("hqueue_console_request_seconds", 0.95, "page")},
        ),
        Panel(
            "Connections and streams",
            "short",
            {
                "connections": "sum(hqueue_console_connections)",
                "streams": "sum(hqueue_console_streams)",
                "not measured": "sum(hqueue_console_unmeasured)",
            },
        ),
        Panel(
            "Sizes of queues",
            "bytes",
            {"{{queue}}": f"max by (queue) (hqueue_console_queue_bytes{{{QUEUE}}})"},
        ),
        Panel(
            "Messages in queues",
            "short",
            {"{{queue}}": f"max by (queue) (hqueue_console_queue_messages{{{QUEUE}}})"},
        ),
    ],
    "Programs": [
        Panel(
            "Sent and received",
            "cps",
            {
                "sent {{queue}}": _rate("hqueue_client_sent_messages_total", "queue", QUEUE),
                "received {{queue}} {{group}}": _rate(
                    "hqueue_client_received_messages_total", "queue, group", QUEUE
                ),
                "processed {{subscriber}}": _rate(
                    "hqueue_client_processed_messages_total", "subscriber"
                ),
            },
        ),
        Panel("Time of a send", "s", _quantiles("hqueue_client_send_seconds", QUEUE)),
        Panel(
            "Bytes sent",
            "Bps",
            {"{{queue}}": _rate("hqueue_client_sent_bytes_total", "queue", QUEUE)},
        ),
        Panel(
            "Errors",
            "cps",
            {
                "sends {{queue}} {{outcome}}": _rate(
                    "hqueue_client_failed_sends_total", "queue, outcome", QUEUE
                ),
                "commits {{group}} {{outcome}}": _rate(
                    "hqueue_client_failed_commits_total", "group, outcome"
                ),
            },
        ),
        Panel(
            "Answers of share consumers",
            "cps",
            {
                "{{group}} {{answer}}": _rate(
                    "hqueue_client_answered_messages_total", "group, answer", QUEUE
                )
            },
        ),
        Panel(
            "Times of commits and listeners, 95 %",
            "s",
            {
                "commit {{group}}": _quantile("hqueue_client_commit_seconds", 0.95, "group"),
                "listener {{subscriber}}": _quantile(
                    "hqueue_client_process_seconds", 0.95, "subscriber"
                ),
            },
        ),
        Panel(
            "Processes of hqueue work",
            "cps",
            {"{{group}} {{result}}": _rate("hqueue_work_processes_total", "group, result", QUEUE)},
        ),
        Panel(
            "Time of a process of hqueue work, 95 %",
            "s",
            {"{{group}}": _quantile("hqueue_work_process_seconds", 0.95, "group", QUEUE)},
        ),
    ],
    "Security": [
        Panel(
            "Refused connections",
            "cps",
            {"{{port}} {{reason}}": _rate("hqueue_refused_connections_total", "port, reason")},
        ),
        Panel(
            "Connections without TLS",
            "cps",
            {"{{port}}": _rate("hqueue_plaintext_connections_total", "port")},
        ),
        Panel(
            "Calls over their quotas",
            "cps",
            {"{{port}} {{limit}}": _rate("hqueue_quota_refusals_total", "port, limit")},
        ),
        Panel(
            "Until certificates expire",
            "s",
            {"{{instance}}": "hqueue_certificate_expiration_timestamp_seconds - time()"},
        ),
        Panel(
            "Skipped messages",
            "short",
            {
                "{{queue}}": (
                    f"sum by (queue) (increase(hqueue_skipped_messages_total{{{QUEUE}}}{RATE}))"
                )
            },
        ),
    ],
    "Processes": [
        Panel(
            "Memory",
            "bytes",
            {"{{instance}}": 'process_resident_memory_bytes{job=~".*hqueue.*"}'},
        ),
        Panel(
            "Processor",
            "percentunit",
            {"{{instance}}": _rate("process_cpu_seconds_total", "instance", 'job=~".*hqueue.*"')},
        ),
        Panel(
            "Open files",
            "short",
            {"{{instance}}": 'process_open_fds{job=~".*hqueue.*"}'},
        ),
        Panel(
            "Time since the start",
            "s",
            {"{{instance}}": 'time() - process_start_time_seconds{job=~".*hqueue.*"}'},
        ),
    ],
}
"""The panels by the rows that hold them."""
