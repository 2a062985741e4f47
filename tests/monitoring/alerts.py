"""The alerts: their expressions, what each means, and what an operator does."""

from __future__ import annotations

from tests.monitoring.alert import Alert
from tests.monitoring.hub_alerts import HUB_ALERTS

__all__ = ["ALERTS"]

ALERTS = (
    Alert(
        "HQueueProcessDown",
        "critical",
        'up{job=~".*hqueue.*"} == 0',
        2,
        "{{ $labels.instance }} of {{ $labels.job }} answers no scrape",
        "Prometheus can't read the metrics of a worker or a hub: the process is gone, hangs, or its "
        "port can't be reached. Other workers and hubs take its partitions and topics over when its "
        "session with ZooKeeper ends.",
        "Look at the process (`systemctl status`, `kubectl describe pod`) and at the end of its log. "
        "If it runs, ask `/health` from its own host. With `tls`, Prometheus needs a certificate "
        "whose principal is in `metrics_principals`.",
        "Start the process again. If it ends again at once, its last line on stderr says why, and "
        "`hqueue doctor` examines the settings.",
        {'up{job="hqueue-worker", instance="a:9109"}': "0x30"},
        {'up{job="hqueue-worker", instance="a:9109"}': "1x30"},
        {"job": "hqueue-worker", "instance": "a:9109"},
    ),
    Alert(
        "HQueueSessionLost",
        "critical",
        "hqueue_session_certain == 0",
        2,
        "{{ $labels.instance }} has no session with ZooKeeper",
        "The process runs, but its session with ZooKeeper is over or in doubt, so it delivers and "
        "publishes nothing.",
        "Look at ZooKeeper's ensemble first: if the alert fires for several processes, ZooKeeper "
        "has no quorum or can't be reached. If it fires for one process, look at its host: a clock "
        "that jumped, long pauses of the process, a network that is cut.",
        "Restore ZooKeeper or the network. The process begins a new session by itself and claims "
        "partitions again.",
        {'hqueue_session_certain{instance="a:9109"}': "0x30"},
        {'hqueue_session_certain{instance="a:9109"}': "1x30"},
        {"instance": "a:9109"},
    ),
    Alert(
        "HQueueDeliveryLate",
        "warning",
        "max by (queue, subscriber) (hqueue_lag_seconds) > 300",
        5,
        "{{ $labels.subscriber }} is more than five minutes late in {{ $labels.queue }}",
        "Messages wait for more than five minutes until workers deliver them to this subscriber.",
        "`hqueue lag QUEUE` shows the partitions. If `served by` is empty, no worker runs. If "
        "`connected` is no, the subscriber's process is away. If it is yes, the listener is slow or "
        "answers *retry* (`hqueue_retried_messages_total`).",
        "Start the subscriber or more members of it, mend the listener, or start a worker. If one "
        "message ends the process, workers isolate it and make it a dead letter by themselves.",
        {'hqueue_lag_seconds{queue="q", partition="0", subscriber="s"}': "400x30"},
        {'hqueue_lag_seconds{queue="q", partition="0", subscriber="s"}': "299x30"},
        {"queue": "q", "subscriber": "s"},
    ),
    Alert(
        "HQueueSubscriberSilent",
        "warning",
        "sum by (queue, subscriber) (increase(hqueue_unanswered_calls_total[10m])) > 10",
        5,
        "{{ $labels.subscriber }} of {{ $labels.queue }} leaves calls without an answer",
        "Workers called the subscriber more than ten times in ten minutes without an answer: its "
        "process ends, hangs or takes longer than `timeout_ms`.",
        "Look at the subscriber's log, and at `hqueue_halved_calls_total`: if it grows, workers "
        "search for a message that ends the process.",
        "Mend or restart the subscriber; give its subscription a longer time-out if its work takes "
        "that long.",
        {'hqueue_unanswered_calls_total{queue="q", partition="0", subscriber="s"}': "0+5x30"},
        {'hqueue_unanswered_calls_total{queue="q", partition="0", subscriber="s"}': "5x30"},
        {"queue": "q", "subscriber": "s"},
    ),
    Alert(
        "HQueueGroupLate",
        "warning",
        "max by (queue, group) (hqueue_group_lag_seconds) > 300",
        5,
        "{{ $labels.group }} is more than five minutes late in {{ $labels.queue }}",
        "Messages wait for more than five minutes after the group's committed offset: its consumers "
        "are too slow, too few, or stuck.",
        "`hqueue groups describe GROUP` shows each partition's consumer and lag. A lag in one "
        "partition alone means that a consumer hangs on a message, or that most messages have one "
        "key. A lag near the queue's TTL means that messages are about to expire unread.",
        "Start more consumers, up to one for each partition. If a message can't be processed, let "
        "the program `reject` it. Lengthen the queue's TTL if messages would expire.",
        {'hqueue_group_lag_seconds{queue="q", partition="0", group="g"}': "400x30"},
        {'hqueue_group_lag_seconds{queue="q", partition="0", group="g"}': "299x30"},
        {"queue": "q", "group": "g"},
    ),
    Alert(
        "HQueueGroupWithoutConsumers",
        "warning",
        "max by (group) (hqueue_group_members) == 0 "
        "and on (group) max by (group) (hqueue_group_lag_messages) > 0",
        10,
        "{{ $labels.group }} has messages and no consumer",
        "No consumer of the group runs, and messages wait for it.",
        "`hqueue groups describe GROUP --members` lists the group's consumers. Groups to which Spark "
        "commits its offsets have no members: silence the alert for them.",
        "Start the consumers. If nobody needs the group any more, `hqueue groups delete GROUP` "
        "deletes its offsets.",
        {
            'hqueue_group_members{group="g"}': "0x30",
            'hqueue_group_lag_messages{queue="q", partition="0", group="g"}': "7x30",
        },
        {
            'hqueue_group_members{group="g"}': "1x30",
            'hqueue_group_lag_messages{queue="q", partition="0", group="g"}': "7x30",
        },
        {"group": "g"},
    ),
    Alert(
        "HQueueShareGroupStuck",
        "warning",
        "max by (queue, group) (abs("
        "max by (queue, partition, group) (hqueue_share_group_acquired_seconds) "
        "- max by (queue, partition, group) (hqueue_share_group_acquired_seconds offset 1h) "
        "- 3600) < 60)",
        10,
        "a consumer of {{ $labels.group }} has held a message of {{ $labels.queue }} for an hour",
        "The oldest message that consumers of a share group hold is the same as an hour ago. With "
        "`auto_renew` its lock never lapses, so no other consumer gets the message.",
        "`hqueue groups describe GROUP --json` names the holders.",
        "Restart the consumer that holds the message: the message is delivered again. If work takes "
        "that long, put a longer time than an hour into the rule.",
        {'hqueue_share_group_acquired_seconds{queue="q", partition="0", group="g"}': "0+60x90"},
        {
            'hqueue_share_group_acquired_seconds{queue="q", partition="0", group="g"}': "7200x90",
            'hqueue_share_group_acquired_seconds{queue="q", partition="1", group="g"}': "0x50 "
            "4000+60x40",
        },
        {"queue": "q", "group": "g"},
        tested_minutes=84,
    ),
    Alert(
        "HQueueDeadLetters",
        "warning",
        "sum by (queue) (increase(hqueue_dead_letters_total[15m])) > 0 "
        "or sum by (queue) (max by (queue, partition, group, reason) "
        "(increase(hqueue_share_group_rejected_messages_total[15m]))) > 0",
        0,
        "{{ $labels.queue }} has new dead letters",
        "A subscriber or a share group rejected messages, or failed at them too often. They are "
        "kept in the queue as dead letters, and are not delivered again by themselves.",
        "`hqueue dead-letters QUEUE` lists them with their owners and the reasons.",
        "Mend the program, and redrive the letters (`--redrive-all`), or delete them.",
        {'hqueue_dead_letters_total{queue="q", partition="0", subscriber="s"}': "0x10 1x20"},
        {'hqueue_dead_letters_total{queue="q", partition="0", subscriber="s"}': "1x30"},
        {"queue": "q"},
    ),
    Alert(
        "HQueueMessagesSkipped",
        "critical",
        "sum by (queue, partition) (increase(hqueue_skipped_messages_total[20m])) > 0 "
        "or sum by (queue, partition) (hqueue_skipped_messages_total "
        "unless hqueue_skipped_messages_total offset 20m) > 0",
        0,
        "readers of {{ $labels.queue }}/{{ $labels.partition }} skip messages that can't be read",
        "Readers skip messages whose bytes are damaged, because an operator allowed it with `hqueue "
        "verify --skip`. The messages are lost to readers.",
        "`hqueue verify QUEUE` names the batches. HBase's logs say what happened to the store's "
        "files.",
        "Restore the batches from a backup, or accept the loss. See [When "
        "something is wrong](repairing.md#batches-that-cant-be-read).",
        {'hqueue_skipped_messages_total{queue="q", partition="0"}': "0x10 3x20"},
        {'hqueue_skipped_messages_total{queue="q", partition="0"}': "3x30"},
        {"queue": "q", "partition": "0"},
    ),
    Alert(
        "HQueueNotificationsRefused",
        "info",
        'sum(rate(hqueue_append_notifications_total{authenticated="no"}[10m])) '
        "> 0.5 * sum(rate(hqueue_append_notifications_total[10m]))",
        15,
        "most batches of append notifications are not authenticated",
        "More than half of the batches that producers send to workers are not signed with the "
        "cluster's key. Workers read them from HBase instead, which takes more time and requests.",
        "Producers without access to ZooKeeper can't read the key. A stranger may also send forged "
        "notifications: look at the audit lines of workers.",
        "Let producers reach ZooKeeper, with rights to read `/hqueue/secrets/appends`.",
        {
            'hqueue_append_notifications_total{authenticated="no"}': "0+60x60",
            'hqueue_append_notifications_total{authenticated="yes"}': "0+10x60",
        },
        {
            'hqueue_append_notifications_total{authenticated="no"}': "0+10x60",
            'hqueue_append_notifications_total{authenticated="yes"}': "0+60x60",
        },
    ),
    *HUB_ALERTS,
)
