"""What workers and hubs are built on: a queue's open log, to append to, read, follow and own; and
the offsets of a group, for a program that keeps its own positions, as streams of Spark do.

Workers, hubs and Spark's part use this package and the exports of `hqueue` and `hqueue.metadata`. A
program that serves queues to others can do the same:

    log = hqueue.engine.Engine(client).open("events", ranges_of)
    log.put(hqueue.Message("clicks", b"hello"))
    owned = log.own(partition=0, on_fence=lambda topic, epoch: None)
"""

from hqueue.consume.decode import each_message_of, may_be_delayed, messages_of
from hqueue.consume.fetcher import Fetch, Fetcher, Pace, fetch_once
from hqueue.consume.near import near
from hqueue.consume.queue_reader import LoopReader
from hqueue.consume.topic_cursor import TopicCursor
from hqueue.consume.topic_past import TopicPast
from hqueue.consume.topic_reader import TopicReader
from hqueue.engine.engine import Engine
from hqueue.engine.open_log import LoopLog, OpenLog
from hqueue.format.header import Header, TopicEntry
from hqueue.groups.standalone import StandaloneOffsets
from hqueue.log import Batch, PartitionCursor, PartitionReader
from hqueue.log.ports import Row
from hqueue.log.skipping import Skips
from hqueue.produce.appender import LoopAppender
from hqueue.produce.owned_log import LoopOwnedLog, OwnedLog
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Clock, Deadline
from hqueue.runtime.steps import Pause

__all__ = [
    "Backoff",
    "Batch",
    "Clock",
    "Deadline",
    "Engine",
    "Fetch",
    "Fetcher",
    "Header",
    "LoopAppender",
    "LoopLog",
    "LoopOwnedLog",
    "LoopReader",
    "OpenLog",
    "OwnedLog",
    "Pace",
    "PartitionCursor",
    "PartitionReader",
    "Pause",
    "Row",
    "Skips",
    "StandaloneOffsets",
    "TopicCursor",
    "TopicEntry",
    "TopicPast",
    "TopicReader",
    "each_message_of",
    "fetch_once",
    "may_be_delayed",
    "messages_of",
    "near",
]
