"""What an error says of its operation's outcome where the place that raises it says nothing."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import hqueue
import hqueue_workers
import pyspark_hqueue
from hqueue.errors import (
    ClosedError,
    HQueueError,
    Outcome,
    QueueNotFoundError,
    StoreUnavailableError,
)
from hqueue.log import steps
from hqueue.runtime.clock import SYSTEM_CLOCK, do_step
from hqueue.runtime.only_reads import OnlyReads
from hqueue.runtime.steps import only_reads, reading

ROOT = Path(__file__).parents[2]
PACKAGES = (hqueue, hqueue_workers, pyspark_hqueue)

NOT_APPLIED = {
    "AuthenticationError": "the server did nothing for a client that it does not know",
    "BadVersionError": "the record kept the version that others gave it",
    "BufferFullError": "the message was not taken",
    "CheckpointMovedError": "the checkpoint stays as others left it",
    "ClockSkewError": "raised before the batch is sent",
    "ClosedError": "raised before anything is sent; what was under way says unknown",
    "CorruptLogError": "what was read; a writer that reads says the outcome of its append",
    "DataLossError": "what was read",
    "FencedError": "the put was not sent",
    "FencedTopicError": "the log refused the batch",
    "GroupNotFoundError": "there is nothing to change",
    "IdempotencyKeyError": "the put was not sent",
    "IdempotencyKeyReusedError": "the put was not sent",
    "IdempotencyKeyTooOldError": "the put was not sent",
    "InvalidInputError": "raised before anything is sent",
    "JobError": "a pipeline goes on where it was: doing it again does nothing twice",
    "LocalServerError": "a server, and nothing of a queue; starting or stopping it again is safe",
    "MessageTooLargeError": "raised before anything is sent",
    "MetadataReadOnlyError": "the store takes no changes",
    "NoSubscriptionStateError": "there is nothing to change",
    "NoTopicOwnerInfoError": "there is nothing to change",
    "NoTopicPersistenceInfoError": "there is nothing to change",
    "NotAQueueError": "refused by the state of the table",
    "NotAllowedError": "refused",
    "NotServedError": "HBase says that nothing was done",
    "OffsetOutOfRangeError": "what was read",
    "OutputError": "the program's own stdout; what was read stays in the queue",
    "PortTakenError": "as LocalServerError",
    "QueueDisabledError": "refused by the state of the table",
    "QueueEnabledError": "refused by the state of the table",
    "QueueExistsError": "refused by the state of the table",
    "QueueNotFoundError": "refused by the state of the table",
    "QueueStateError": "refused by the state of the table",
    "RequestRefusedError": "the answer is that it will not be done",
    "ScannerBusyError": "what was read",
    "ScannerNotFoundError": "what was read",
    "SettingsError": "raised before anything is sent",
    "SnapshotError": "the snapshot was not taken, restored or deleted",
    "SnapshotExistsError": "the earlier snapshot stays as it is",
    "SnapshotNotFoundError": "there was nothing to restore or delete",
    "SubscriberConnectedError": "refused by the state of the subscription",
    "SubscriberExistsError": "refused by the state of the subscription",
    "SubscriberNotFoundError": "there is nothing to change",
    "SubscriptionStateError": "refused by the state of the subscription",
    "SubscriptionStateExistsError": "refused by the state of the subscription",
    "TopicFencedError": "the log refused the batch",
    "UnknownSequenceNumbersError": "the publish was not appended",
    "UnsupportedFormatError": "as CorruptLogError",
    "_NoTopicError": "there is nothing to delete",
}
"""Classes whose errors mean that nothing was done, and why."""
UNKNOWN = {
    "CommitFailedError": "an answer before the refusal may have been lost",
    "GroupActiveError": "a change of some partitions may have been lost before the refusal",
    "GroupError": "nothing is said of what happened",
    "HQueueError": "nothing is said of what happened",
    "HubError": "a hub may have done it",
    "HubUnavailableError": "a hub may have done it",
    "MetadataError": "nothing is said of what happened",
    "OwnershipError": "nothing is said of what happened",
    "OwnershipLostError": "the append may be in the part of the log that was not seen",
    "PartlyDoneError": "some of several changes may be made",
    "RowsUnreadableError": "the store may have done it",
    "StoreError": "the store may have done it",
    "StoreUnavailableError": "the store may have done it",
}
"""Classes whose errors leave the outcome to the place that raises them, and why."""


def modules() -> Iterator[ModuleType]:
    for package in PACKAGES:
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def classes() -> dict[str, type[HQueueError]]:
    roots = tuple(f"{package.__name__}." for package in PACKAGES)
    [*modules()]
    found, left = {}, [HQueueError]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if kind.__module__.startswith(roots):
            found[kind.__name__] = kind
    return found


def constructions() -> Iterator[tuple[str, ast.Call]]:
    """Each call in the packages that makes an error of a class that leaves its outcome open."""
    for package in PACKAGES:
        for path in Path(package.__path__[0]).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    made = node.args[0] if called(node.func) == "partial" else node.func
                    if called(made) in UNKNOWN:
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def called(function: ast.expr) -> str:
    return str(getattr(function, "id", getattr(function, "attr", "")))


def test_each_class_of_errors_has_the_default_that_its_definition_gives_it() -> None:
    found = {name: kind.default_outcome for name, kind in classes().items()}
    assert found == {
        **dict.fromkeys(NOT_APPLIED, Outcome.NOT_APPLIED),
        **dict.fromkeys(UNKNOWN, Outcome.UNKNOWN),
    }


def test_each_place_that_raises_an_error_with_an_open_outcome_says_which_it_is() -> None:
    places = dict(constructions())
    assert len(places) > 80
    assert [
        at for at, call in places.items() if "outcome" not in {k.arg for k in call.keywords}
    ] == []


def test_an_error_whose_outcome_nobody_set_says_unknown_and_shows_it() -> None:
    for error in (HQueueError("x"), pickle.loads(pickle.dumps(StoreUnavailableError("x")))):
        assert error.outcome is Outcome.UNKNOWN
        assert str(error) == "x [outcome='unknown']"
    refused = QueueNotFoundError("there is no such queue", queue="q")
    assert refused.outcome is Outcome.NOT_APPLIED
    assert str(refused) == "there is no such queue [queue='q']"
    assert ClosedError("x", outcome=Outcome.UNKNOWN).outcome is Outcome.UNKNOWN


class Write:
    def do(self, _: object) -> object:
        raise StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN)


@reading
class Read(Write):
    pass


def test_a_request_of_the_log_that_only_reads_leaves_no_outcome_unknown() -> None:
    requests = [kind for kind in vars(steps).values() if hasattr(kind, "_fields")]
    made = [kind(*[()] * len(kind._fields)) for kind in requests]
    assert {type(step).__name__ for step in made if only_reads(step)} == {
        "Newest", "Headers", "Get", "Open", "Read", "Backwards", "HeaderAt", "ReadRecord",
        "MeasureClock",
    }  # fmt: skip
    for step, outcome in ((Write(), Outcome.UNKNOWN), (Read(), Outcome.NOT_APPLIED)):
        with pytest.raises(StoreUnavailableError) as caught:
            do_step(None, SYSTEM_CLOCK, step)
        assert caught.value.outcome is outcome


def test_what_only_reads_lets_other_errors_be() -> None:
    @OnlyReads()
    def fails(raised: Callable[[], Exception]) -> None:
        raise raised()

    with pytest.raises(HQueueError) as caught:
        fails(lambda: HQueueError("x"))
    assert caught.value.outcome is Outcome.NOT_APPLIED
    with pytest.raises(KeyError):
        fails(lambda: KeyError("x"))
