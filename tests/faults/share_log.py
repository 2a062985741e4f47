"""What share groups have at the end of a run: how far each is, and what lies in the log."""

from __future__ import annotations

from pathlib import Path

from hqueue import Client, PartitionKey, Settings
from hqueue.groups.paths import GroupPaths
from hqueue.settings.reserved import is_unreserved
from hqueue.sharing.window_record import decode_window

from .messages import token_of
from .share_history import GROUPS, Letter, Logged, ShareHistory, ShareRecorder, load_shares

__all__ = ["last_ids", "read_shares", "unfinished"]


def last_ids(client: Client, queue: str) -> dict[int, int]:
    """By partition: the ID of the last message that is not a dead letter."""
    last: dict[int, int] = {}
    opened = client.queue(queue)
    for partition in range(opened.partitions):
        with opened.scan(partition=partition) as scanner:
            for message in scanner:
                if is_unreserved(message.topic):
                    last[partition] = int(message.id)
    return last


def unfinished(
    client: Client, settings: Settings, queue: str, group: str, last: dict[int, int]
) -> list[int]:
    """The partitions in which a group is not done with all messages up to these."""
    paths = GroupPaths(settings.zookeeper_root, group, settings.broker_id)
    by_path = {paths.share(PartitionKey(queue, partition)): partition for partition in last}
    records = client.coordination.store.records.read(by_path)
    left = []
    for path, partition in by_path.items():
        record = records.get(path)
        if record is not None:
            window = decode_window(record.value, path)
            waits = window.late or window.delays or window.moves
            if window.begin > last[partition] and not waits:
                continue
        left.append(partition)
    return left


def read_shares(client: Client, queue: str, folder: Path) -> ShareHistory:
    """Read all messages and dead letters; what all processes wrote down is in the history, too."""
    path = folder / "final.shares.jsonl"
    path.unlink(missing_ok=True)
    recorder = ShareRecorder(path)
    opened = client.queue(queue)
    for partition in range(opened.partitions):
        with opened.scan(partition=partition) as scanner:
            for message in scanner:
                if is_unreserved(message.topic):
                    key = None if message.key is None else message.key.hex()
                    logged = Logged(token_of(message), key, message.deliver_at_ms)
                    recorder.logged((partition, int(message.id)), logged)
    for group in GROUPS:
        for letter in opened.dead_letters.waiting(group=group):
            place = letter.message.partition, int(letter.message.id)
            recorder.letter(group, place, Letter(letter.reason, letter.attempts))
    return load_shares(folder)
