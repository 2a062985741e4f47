"""The metrics of programs that produce and consume, as part of the list of all metrics."""

from __future__ import annotations

from hqueue.metrics.metric import counter_of, seconds_of

__all__ = ["CLIENT_METRICS"]

CLIENT, WORK = ("client", "work"), ("work",)
GROUPS = ("group",)
QUEUES = ("queue",)

CLIENT_METRICS = (
    counter_of(
        "client_sent_messages",
        "Messages that this process wrote to a queue, or published to a hub.",
        CLIENT,
        QUEUES,
        notes="Dead letters count, too.",
    ),
    counter_of(
        "client_sent_bytes",
        "Bytes of these messages, as they were sent: compressed, except to hubs.",
        CLIENT,
        QUEUES,
        "bytes",
    ),
    counter_of(
        "client_failed_sends",
        "Batches that ended with an error, by its outcome.",
        CLIENT,
        ("queue", "outcome"),
        "batches",
        notes="`outcome` is `not_applied` or `unknown`.",
    ),
    seconds_of(
        "client_send_seconds",
        "Time from the beginning of a batch's append or publish until it is durable.",
        CLIENT,
        QUEUES,
    ),
    counter_of(
        "client_received_messages",
        "Messages that consumers of this process returned.",
        CLIENT,
        ("queue", "group"),
        notes="Counted when the program has the last message of a batch, or asks for more.",
    ),
    counter_of(
        "client_answered_messages",
        "Messages that share consumers of this process answered.",
        CLIENT,
        ("queue", "group", "answer"),
        notes="`answer` is `done`, `release` or `reject`.",
    ),
    seconds_of(
        "client_commit_seconds",
        "Time of a commit of offsets, or of a write of answers.",
        CLIENT,
        GROUPS,
    ),
    counter_of(
        "client_failed_commits",
        "Commits of offsets and writes of answers that ended with an error, by its outcome.",
        CLIENT,
        ("group", "outcome"),
        "commits",
    ),
    counter_of(
        "client_processed_messages",
        "Messages that this process gave to its listeners.",
        CLIENT,
        ("subscriber",),
    ),
    seconds_of(
        "client_process_seconds",
        "Time that listeners took for the messages of a call.",
        CLIENT,
        ("subscriber",),
    ),
    counter_of(
        "work_processes",
        "Processes of hqueue work that have ended, by what became of their messages.",
        WORK,
        ("queue", "group", "result"),
        "processes",
        notes="`result` is `done`, `retried` or `rejected`.",
    ),
    seconds_of(
        "work_process_seconds",
        "Time that a process of hqueue work took.",
        WORK,
        ("queue", "group"),
    ),
)
