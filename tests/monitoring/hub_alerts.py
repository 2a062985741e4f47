"""The alerts of hubs, the Thrift API and ports."""

from __future__ import annotations

from tests.monitoring.alert import Alert

__all__ = ["HUB_ALERTS"]

HUB_ALERTS = (
    Alert(
        "HQueueHubPublishesFail",
        "critical",
        "sum(rate(hqueue_hub_failed_publishes_total[5m])) "
        "> 0.01 * sum(rate(hqueue_hub_appends_total[5m])) "
        "and sum(rate(hqueue_hub_failed_publishes_total[5m])) > 0.1",
        5,
        "hubs answer publishes with errors",
        "Hubs answer publishes with errors at more than a hundredth of the rate at which they "
        "append batches.",
        "A hub's log says why: usually HBase refuses or is slow. `hqueue doctor` says which of "
        "HBase's servers can be reached.",
        "Restore HBase. Clients that publish with sequence numbers may repeat their publishes "
        "safely.",
        {
            'hqueue_hub_failed_publishes_total{instance="a:9191"}': "0+60x30",
            'hqueue_hub_appends_total{instance="a:9191"}': "0+60x30",
        },
        {
            'hqueue_hub_failed_publishes_total{instance="a:9191"}': "0x30",
            'hqueue_hub_appends_total{instance="a:9191"}': "0+60x30",
        },
    ),
    Alert(
        "HQueueHubPublishesSlow",
        "warning",
        "histogram_quantile(0.99, "
        "sum by (le) (rate(hqueue_hub_publish_latency_seconds_bucket[5m]))) > 1",
        10,
        "one publish in a hundred takes longer than a second",
        "One publish in a hundred takes longer than a second until its messages are in the log.",
        "`hqueue_hub_pending_bytes` shows whether batches wait for HBase. Compare with the latency "
        "of HBase's write-ahead log.",
        "Relieve HBase, give the queue more partitions for its load, or start more hubs if the hubs "
        "use their processors fully.",
        {
            'hqueue_hub_publish_latency_seconds_bucket{le="1.0"}': "0x40",
            'hqueue_hub_publish_latency_seconds_bucket{le="2.5"}': "0+60x40",
            'hqueue_hub_publish_latency_seconds_bucket{le="+Inf"}': "0+60x40",
        },
        {
            'hqueue_hub_publish_latency_seconds_bucket{le="1.0"}': "0+60x40",
            'hqueue_hub_publish_latency_seconds_bucket{le="2.5"}': "0+60x40",
            'hqueue_hub_publish_latency_seconds_bucket{le="+Inf"}': "0+60x40",
        },
    ),
    Alert(
        "HQueueHubSubscriptionLate",
        "warning",
        "max by (queue, topic, subscriber) (hqueue_hub_lag_seconds) > 300",
        5,
        "{{ $labels.subscriber }} is more than five minutes late in topic {{ $labels.topic }}",
        "Messages of a topic wait for more than five minutes until the topic's hub delivers them to "
        "this subscription.",
        "`hqueue topics subscriptions QUEUE TOPIC` shows the lag of each subscription. "
        "`hqueue_hub_unanswered_calls_total` counts calls that subscribers don't answer.",
        "Start the subscriber, or mend it. Delete a subscription that nobody needs any more.",
        {'hqueue_hub_lag_seconds{queue="q", topic="t", subscriber="s"}': "400x30"},
        {'hqueue_hub_lag_seconds{queue="q", topic="t", subscriber="s"}': "1x30"},
        {"queue": "q", "topic": "t", "subscriber": "s"},
    ),
    Alert(
        "HQueueHubMessagesDropped",
        "warning",
        "sum by (instance) (increase(hqueue_hub_dropped_messages_total[15m])) > 0",
        0,
        "{{ $labels.instance }} drops messages beyond a subscription's bound",
        "More messages waited than a subscription's message bound allows, and the hub dropped the "
        "oldest for that subscription. They are still in the log.",
        "The hub's log names the subscription.",
        "Raise the subscription's bound, or make its subscriber faster. `hqueue scan` reads the "
        "dropped messages.",
        {'hqueue_hub_dropped_messages_total{instance="a:9191"}': "0x10 9x20"},
        {'hqueue_hub_dropped_messages_total{instance="a:9191"}': "9x30"},
        {"instance": "a:9191"},
    ),
    Alert(
        "HQueueTopicsContested",
        "warning",
        "sum(increase(hqueue_hub_fenced_topics_total[15m])) > 20",
        5,
        "hubs take topics from each other",
        "Hubs fenced off each other's topics more than twenty times in fifteen minutes. Each "
        "take-over delays publishes for a moment.",
        "Compare `hqueue_hub_takeovers_total` of the hubs, and look for sessions that end again and "
        "again (`hqueue_session_certain`).",
        "Restore stable sessions: mend clocks, pauses of processes, or ZooKeeper. Restarts of hubs "
        "cause a few take-overs, too, and need no action.",
        {'hqueue_hub_fenced_topics_total{instance="a:9191"}': "0+5x40"},
        {'hqueue_hub_fenced_topics_total{instance="a:9191"}': "30x40"},
    ),
    Alert(
        "HQueueApiFails",
        "warning",
        'sum(rate(hqueue_api_calls_total{result=~"unavailable|service_error"}[5m])) '
        "> 0.05 * sum(rate(hqueue_api_calls_total[5m]))",
        5,
        "the Thrift API answers calls with errors of the service",
        "More than one call in twenty of the Thrift API ends with `unavailable` or `service_error`.",
        "`unavailable` points to HBase or to a port that is full; `service_error` is logged with "
        "its cause by the process that serves the API.",
        "Restore HBase. If calls wait for their turn, raise `api_threads` or start another process "
        "that serves the API.",
        {
            'hqueue_api_calls_total{method="messagePut", result="unavailable"}': "0+60x30",
            'hqueue_api_calls_total{method="messagePut", result="ok"}': "0+60x30",
        },
        {
            'hqueue_api_calls_total{method="messagePut", result="unavailable"}': "0+1x30",
            'hqueue_api_calls_total{method="messagePut", result="ok"}': "0+60x30",
        },
    ),
    Alert(
        "HQueueClientSendsFail",
        "warning",
        "sum by (job, queue) (rate(hqueue_client_failed_sends_total[5m])) > 0.1",
        5,
        "programs of {{ $labels.job }} can't write to {{ $labels.queue }}",
        "Batches that producers of this job write to the queue, or publish to its hubs, end with errors.",
        "The error in the program's log says why; `hqueue doctor` run with the program's settings "
        "examines the way to HBase. A batch whose error has the "
        "outcome `unknown` may be in the log.",
        "Restore HBase or the hubs, or mend the program's rights and settings.",
        {'hqueue_client_failed_sends_total{job="shop", queue="q", outcome="unknown"}': "0+60x30"},
        {'hqueue_client_failed_sends_total{job="shop", queue="q", outcome="unknown"}': "5x30"},
        {"job": "shop", "queue": "q"},
    ),
    Alert(
        "HQueueCertificateExpires",
        "critical",
        "hqueue_certificate_expiration_timestamp_seconds - time() < 7 * 86400",
        0,
        "the certificate of {{ $labels.instance }} expires within a week",
        "The certificate that the process's ports use expires within a week. After that callers "
        "refuse to call the process, and it can't call others.",
        "`hqueue doctor` shows the certificates of a configuration.",
        "Replace the files: processes read them again without a restart. See [Security]"
        "(security.md).",
        {'hqueue_certificate_expiration_timestamp_seconds{instance="a:9109"}': "86400x30"},
        {'hqueue_certificate_expiration_timestamp_seconds{instance="a:9109"}': "8640000x30"},
        {"instance": "a:9109"},
    ),
    Alert(
        "HQueueConnectionsRefused",
        "warning",
        "sum by (instance, port, reason) (rate(hqueue_refused_connections_total[10m])) > 0.2",
        10,
        "port {{ $labels.port }} of {{ $labels.instance }} refuses connections: {{ $labels.reason }}",
        "A port refuses callers again and again: their certificates are missing, unknown or expired, "
        "or their principals may not call it.",
        "The process's audit lines name the callers and the reasons ([Refusals]"
        "(security.md#refusals)).",
        "Give the callers valid certificates or the right to call, or stop the stranger.",
        {
            'hqueue_refused_connections_total{instance="a:1", port="hub", reason="certificate"}': (
                "0+60x30"
            )
        },
        {
            'hqueue_refused_connections_total{instance="a:1", port="hub", reason="certificate"}': "9x30"
        },
        {"instance": "a:1", "port": "hub", "reason": "certificate"},
    ),
    Alert(
        "HQueueQuotasExceeded",
        "info",
        "sum by (port, limit) (rate(hqueue_quota_refusals_total[10m])) > 1",
        10,
        "callers of port {{ $labels.port }} exceed their quota of {{ $labels.limit }}",
        "Calls are refused because their callers exceed their quotas. Well-behaved clients wait and "
        "repeat the calls.",
        "The process's log names the principals or addresses.",
        "Raise the quota of a caller that needs more ([Quotas](quotas.md)), or slow the "
        "caller down.",
        {'hqueue_quota_refusals_total{port="hub", limit="calls"}': "0+120x30"},
        {'hqueue_quota_refusals_total{port="hub", limit="calls"}': "0+1x30"},
        {"port": "hub", "limit": "calls"},
    ),
    Alert(
        "HQueueFilesShort",
        "warning",
        'process_open_fds{job=~".*hqueue.*"} > 0.9 * process_max_fds{job=~".*hqueue.*"}',
        5,
        "{{ $labels.instance }} has nearly as many files open as it may",
        "The process has more than nine tenths of the open files that its limit allows. At the limit "
        "its ports refuse new connections.",
        "The process logs at its start if its ports may have more connections than the limit allows.",
        "Raise the limit (`LimitNOFILE` in the systemd unit), or lower the settings of connections.",
        {
            'process_open_fds{job="hqueue-hub", instance="a:1"}': "95x30",
            'process_max_fds{job="hqueue-hub", instance="a:1"}': "100x30",
        },
        {
            'process_open_fds{job="hqueue-hub", instance="a:1"}': "50x30",
            'process_max_fds{job="hqueue-hub", instance="a:1"}': "100x30",
        },
        {"job": "hqueue-hub", "instance": "a:1"},
    ),
)
