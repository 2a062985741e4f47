"""The list of all metrics. The roles make their metrics from it, and so do the reference page, the
dashboard and the rules of alerts: ``make monitoring`` writes these files.
"""

from __future__ import annotations

from collections.abc import Iterable

from hqueue.metrics.client_catalog import CLIENT_METRICS
from hqueue.metrics.metric import (
    LATENCY_BUCKETS_S,
    Metric,
    Role,
    counter_of,
    gauge_of,
    seconds_of,
)

__all__ = ["METRICS", "PROCESS_METRICS", "metrics_of"]

WORKER, HUB, API, CONSOLE = ("worker",), ("hub",), ("api",), ("console",)
ROLES = ("worker", "hub", "work", "console")
SERVERS = ("worker", "hub")
PORTS = ("worker", "hub", "console")

DELIVERY_LABELS = ("queue", "partition", "subscriber")
GROUP_LABELS = ("queue", "partition", "group")
DELIVERY_BUCKETS_S = (*LATENCY_BUCKETS_S, 300.0, 3_600.0)


HALVED = (
    "Unanswered calls that were repeated with half their messages, to isolate the one that ends "
    "the subscriber."
)
FATAL = (
    "[One of the messages may be fatal](../push-guarantees.md#messages-that-end-their-subscriber)."
)
SAME_WORKERS = "For some seconds two workers may expose a group: take the `max` over instances."

_PROCESSES = (
    gauge_of(
        "build_info",
        "1, with the version of HQueue that the process runs.",
        ROLES,
        ("version",),
        "1",
    ),
    gauge_of(
        "session_certain",
        "1 while the session with ZooKeeper certainly lives; 0 while the process may not act.",
        SERVERS,
        (),
        "1",
        notes="A worker that only serves the Thrift API has no session of its own and shows 1.",
    ),
    counter_of(
        "skipped_messages",
        "Unreadable messages that were skipped because an operator allowed it.",
        SERVERS,
        ("queue", "partition"),
        notes="[`hqueue verify --skip`](../repairing.md#batches-that-cant-be-read) allows it.",
    ),
    counter_of(
        "refused_connections",
        "Connections that a port of this process refused.",
        PORTS,
        ("port", "reason"),
        "connections",
        notes="[Security](../security.md#refusals) lists the reasons.",
    ),
    counter_of(
        "plaintext_connections",
        "Connections without TLS that a port of this process accepted (tls_optional).",
        PORTS,
        ("port",),
        "connections",
        notes="See [the move to TLS](../moving-to-tls.md).",
    ),
    gauge_of(
        "certificate_expiration_timestamp_seconds",
        "Time at which the certificate of this process's ports expires.",
        PORTS,
        (),
        "seconds since 1970",
        notes="Only with `tls`.",
    ),
    counter_of(
        "quota_refusals",
        "Calls that were refused because their callers exceeded their quotas.",
        SERVERS,
        ("port", "limit"),
        "calls",
        notes="See [Quotas](../quotas.md).",
    ),
)

_DELIVERY = (
    gauge_of("partitions_claimed", "Partitions that this worker serves.", WORKER, (), "partitions"),
    gauge_of("lag_messages", "Messages not delivered yet, of all topics.", WORKER, DELIVERY_LABELS),
    gauge_of(
        "lag_seconds",
        "Age of the oldest message not delivered yet.",
        WORKER,
        DELIVERY_LABELS,
        "seconds",
    ),
    counter_of(
        "delivered_messages",
        "Messages delivered, without repeated deliveries.",
        WORKER,
        DELIVERY_LABELS,
    ),
    counter_of(
        "retried_messages",
        "Messages that the subscriber asked to have delivered again.",
        WORKER,
        DELIVERY_LABELS,
    ),
    counter_of(
        "rejected_messages", "Messages that the subscriber rejected.", WORKER, DELIVERY_LABELS
    ),
    counter_of("dead_letters", "Messages that became dead letters.", WORKER, DELIVERY_LABELS),
    counter_of(
        "unanswered_calls",
        "Calls that the subscriber did not answer.",
        WORKER,
        DELIVERY_LABELS,
        "calls",
    ),
    counter_of("halved_calls", HALVED, WORKER, DELIVERY_LABELS, "calls", notes=FATAL),
    seconds_of(
        "delivery_latency_seconds",
        "Time from the write of a call's first message to the subscriber's answer.",
        WORKER,
        DELIVERY_LABELS,
        DELIVERY_BUCKETS_S,
    ),
    counter_of(
        "append_notifications",
        "Batches that arrived with append notifications; batches that were not authenticated were "
        "read from HBase.",
        WORKER,
        ("authenticated",),
        "batches",
        notes="`authenticated` is `no` for batches of strangers and of producers without the key.",
    ),
)

_GROUPS = (
    gauge_of(
        "group_members",
        "Consumers in a group.",
        WORKER,
        ("group",),
        "consumers",
        notes=SAME_WORKERS,
    ),
    gauge_of(
        "group_lag_messages",
        "Messages after a group's committed offset, of all topics.",
        WORKER,
        GROUP_LABELS,
        notes=f"Of a share group: messages that are not done. {SAME_WORKERS}",
    ),
    gauge_of(
        "group_lag_seconds",
        "Age of the oldest message after a group's committed offset.",
        WORKER,
        GROUP_LABELS,
        "seconds",
        notes=SAME_WORKERS,
    ),
    gauge_of(
        "share_group_acquired_messages",
        "Messages that consumers of a share group hold now.",
        WORKER,
        GROUP_LABELS,
        notes="See [Consumer groups](../consumer-groups.md).",
    ),
    gauge_of(
        "share_group_redelivered_messages",
        "Held messages that were delivered before.",
        WORKER,
        GROUP_LABELS,
    ),
    gauge_of(
        "share_group_released_messages",
        "Messages that were released and wait for a consumer.",
        WORKER,
        GROUP_LABELS,
    ),
    gauge_of(
        "share_group_delayed_messages",
        "Messages that wait for their time.",
        WORKER,
        GROUP_LABELS,
        notes="As far as consumers have read.",
    ),
    gauge_of(
        "share_group_acquired_seconds",
        "How long ago the oldest message that a consumer holds was written.",
        WORKER,
        GROUP_LABELS,
        "seconds",
    ),
    counter_of(
        "share_group_rejected_messages",
        "Messages of a share group that became dead letters.",
        WORKER,
        (*GROUP_LABELS, "reason"),
        notes="Each message counts once. `reason` is `rejected` by the program, or `exhausted` by "
        "`deliveries_max` deliveries.",
    ),
)

_HUB = (
    gauge_of("hub_topics", "Topics that this hub owns.", HUB, ("queue",), "topics"),
    gauge_of(
        "hub_partitions", "Partitions that this hub has claimed.", HUB, ("queue",), "partitions"
    ),
    gauge_of(
        "hub_subscriptions",
        "Subscriptions attached to this hub.",
        HUB,
        ("queue",),
        "subscriptions",
    ),
    gauge_of(
        "hub_lag_messages",
        "Messages of a topic not yet delivered to a subscription.",
        HUB,
        ("queue", "topic", "subscriber"),
        notes="At most 1,000 subscriptions of each queue: those that have been behind for longest.",
    ),
    gauge_of(
        "hub_lag_seconds",
        "Age of the oldest message not yet delivered to a subscription.",
        HUB,
        ("queue", "topic", "subscriber"),
        "seconds",
        notes="Of the same subscriptions.",
    ),
    counter_of("hub_takeovers", "Topics that this hub took over.", HUB, (), "topics"),
    counter_of(
        "hub_fenced_topics", "Topics of this hub that another owner fenced off.", HUB, (), "topics"
    ),
    counter_of("hub_redirects", "Calls answered with another hub's address.", HUB, (), "calls"),
    counter_of("hub_appends", "Batches appended.", HUB, (), "batches"),
    counter_of("hub_published_messages", "Messages published.", HUB),
    counter_of("hub_failed_publishes", "Publishes that ended with an error.", HUB, (), "calls"),
    counter_of("hub_delivered_messages", "Messages delivered to subscribers.", HUB),
    counter_of(
        "hub_retried_messages", "Messages that subscribers asked to have delivered again.", HUB
    ),
    counter_of("hub_rejected_messages", "Messages that subscribers rejected.", HUB),
    counter_of("hub_unanswered_calls", "Calls that subscribers did not answer.", HUB, (), "calls"),
    counter_of("hub_halved_calls", HALVED, HUB, (), "calls", notes=FATAL),
    counter_of(
        "hub_dropped_messages",
        "Messages dropped because more were waiting than a subscription allows.",
        HUB,
    ),
    counter_of("hub_dead_letters", "Messages that became dead letters.", HUB),
    gauge_of("hub_pending_bytes", "Bytes that wait to be appended.", HUB, (), "bytes"),
    seconds_of(
        "hub_publish_latency_seconds",
        "Time from a publish's arrival until its messages are in the log.",
        HUB,
    ),
)

_API = (
    counter_of(
        "api_calls",
        "Calls of the Thrift API that were answered, by method and result.",
        API,
        ("method", "result"),
        "calls",
        notes="`result` is `ok`, `illegal_argument`, `queue_state`, `idempotency_key`, "
        "`scanner_not_found`, `unavailable` or `service_error`.",
    ),
    seconds_of(
        "api_call_seconds",
        "Time from the end of receiving a call of the Thrift API to its answer.",
        API,
        ("method",),
    ),
    gauge_of("api_scanners", "Open scanners of the Thrift API.", API, (), "scanners"),
    gauge_of(
        "api_scanners_bytes",
        "Approximate bytes that scanners hold between calls.",
        API,
        (),
        "bytes",
    ),
    counter_of(
        "api_scanners_expired",
        "Scanners that expired because they were unused.",
        API,
        (),
        "scanners",
    ),
)

_CONSOLE = (
    counter_of(
        "console_requests",
        "Requests that the console answered, by page and status.",
        CONSOLE,
        ("page", "status"),
        "requests",
        notes="`page` is the page's path, in which names of queues stand as `{queue}`.",
    ),
    counter_of(
        "console_refused_requests",
        "Requests that the console refused before they came to a page.",
        CONSOLE,
        ("status",),
        "requests",
        notes="401: with a ticket of Kerberos that was not accepted; 403: another site's, or of a "
        "principal without the right; 413, 414, 431: too large; 421: for an unknown name; 503: too "
        "many at a time. See [The console](../console.md#security).",
    ),
    seconds_of(
        "console_request_seconds",
        "Time until the console answered a request; of a stream, until it began.",
        CONSOLE,
        ("page",),
    ),
    gauge_of("console_streams", "Pages that follow messages now.", CONSOLE, (), "streams"),
    gauge_of("console_connections", "Open connections of browsers.", CONSOLE, (), "connections"),
    gauge_of(
        "console_unmeasured",
        "Queues, groups and subscribers that the console's last round could not measure.",
        CONSOLE,
        (),
        "measurements",
    ),
    gauge_of(
        "console_queue_messages",
        "Messages that a queue has now.",
        CONSOLE,
        ("queue",),
        notes="Of at most 2,000 queues, groups and subscribers together.",
    ),
    gauge_of(
        "console_queue_bytes",
        "Bytes that a queue takes in store files and in memory of region servers.",
        CONSOLE,
        ("queue",),
        "bytes",
        notes="In whole MiB of each region; none through gateways. See "
        "[Sizes](../console.md#sizes).",
    ),
)

PROCESS_METRICS = tuple(
    Metric(name, kind, text, (), unit, ROLES, "Made by `prometheus_client`, on Linux.")
    for name, kind, text, unit in (
        ("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", "bytes"),
        ("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", "bytes"),
        (
            "process_start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
            "seconds since 1970",
        ),
        (
            "process_cpu_seconds",
            "counter",
            "Total user and system CPU time spent in seconds.",
            "seconds",
        ),
        ("process_open_fds", "gauge", "Number of open file descriptors.", "descriptors"),
        ("process_max_fds", "gauge", "Maximum number of open file descriptors.", "descriptors"),
    )
)
"""Metrics of the process itself, by the names that all Prometheus clients give them."""

METRICS: dict[str, Metric] = {
    each.name: each
    for each in (
        *_PROCESSES,
        *_DELIVERY,
        *_GROUPS,
        *_HUB,
        *_API,
        *_CONSOLE,
        *CLIENT_METRICS,
        *PROCESS_METRICS,
    )
}
"""All metrics by name, in the order in which they are shown."""


def metrics_of(roles: Iterable[Role]) -> list[Metric]:
    """The metrics that a process exposes that has these roles."""
    wanted = set(roles)
    return [each for each in METRICS.values() if wanted.intersection(each.roles)]
