"""Sequences of operations on topics' metadata, against a model that is right by its shortness."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from typing import Any

from hypothesis import strategies as st

from hqueue.errors import BadVersionError, InvalidInputError
from hqueue.metadata.managers import SubscriptionData, Versioned
from hqueue.metadata.ports import ANY, NEW, Version
from tests.support.metadata_kinds import MetadataKind, subscription
from tests.support.topic_managers import TopicManagers

__all__ = ["STEPS", "Step", "follows_the_model"]

Step = tuple[str, str, str, int]
"""The kind, the topic, the version to compare with, and the number that is written."""

TOPICS = ["t", "t/u", "ü"]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["read", "write", "write", "delete", "update", "all"]),
        st.sampled_from(TOPICS),
        st.sampled_from(["new", "any", "right", "right", "older", "newer"]),
        st.integers(0, 50),
    ),
    max_size=25,
)


def follows_the_model(managers: TopicManagers, kind: MetadataKind, steps: list[Step]) -> None:
    """Each operation has the answer that the model says, on a store without such topics."""
    model = _Model(managers, kind, {})
    for what, topic, which, number in steps:
        version = _version(which, model.there.get(topic))
        try:
            managers.others.check_version(version)
        except InvalidInputError:  # No record of this store has it.
            continue
        if what == "write":
            model.write(topic, version, number)
        elif what == "delete":
            model.delete(topic, ANY if version == NEW else version)
        elif what == "update" and kind.name == "subscription" and version != NEW:
            model.update(topic, version, number)
        elif what == "all":
            model.check_all()
        else:
            assert kind.read(managers, topic).result() == model.there.get(topic)
    for topic in TOPICS:
        assert kind.read(managers, topic).result() == model.there.get(topic)
    model.check_all()


@dataclasses.dataclass
class _Model:
    managers: TopicManagers
    kind: MetadataKind
    there: dict[str, Versioned[Any]]

    def write(self, topic: str, version: Version, number: int) -> None:
        value = self.kind.value(number)
        self._change(topic, version, self.kind.write(self.managers, topic, value, version), value)

    def update(self, topic: str, version: Version, number: int) -> None:
        face, whole = self.managers.subscriptions, subscription(number)
        data = whole
        if face.is_partial_update_supported:
            parts = [SubscriptionData(whole.preferences), SubscriptionData(None, whole.state)]
            data = [*parts, whole][number % 3]
        before = self.there[topic].value if topic in self.there else data
        after = SubscriptionData(data.preferences or before.preferences, data.state or before.state)
        asked = face.update_subscription_data(topic, "s", data, version)
        self._change(topic, version, asked, after)

    def delete(self, topic: str, version: Version) -> None:
        refused = self._refusal(topic, version)
        error = self.kind.delete(self.managers, topic, version).exception()
        assert (None if error is None else type(error)) == refused
        if refused is None:
            del self.there[topic]

    def check_all(self) -> None:
        if self.kind.name == "persistence":
            assert sorted(self.managers.persistence.topics()) == sorted(self.there)
        if self.kind.name == "subscription":
            for topic in TOPICS:
                expected = {"s": self.there[topic]} if topic in self.there else {}
                face = self.managers.subscriptions
                assert face.read_subscriptions(topic).result() == expected

    def _change(self, topic: str, version: Version, asked: Future[Version], value: Any) -> None:
        refused = self._refusal(topic, version)
        error = asked.exception()
        assert (None if error is None else type(error)) == refused, error
        if refused is None:
            known = self.there.get(topic)
            assert known is None or asked.result() != known.version
            self.there[topic] = Versioned(value, asked.result())

    def _refusal(self, topic: str, version: Version) -> type[Exception] | None:
        known = self.there.get(topic)
        if version == NEW:
            return None if known is None else self.kind.exists
        if known is None:
            return self.kind.missing
        return None if version in (ANY, known.version) else BadVersionError


def _version(which: str, there: Versioned[Any] | None) -> Version:
    known = 0 if there is None else there.version
    by_name = {"new": NEW, "any": ANY, "right": known, "older": max(0, known - 1)}
    return Version(by_name.get(which, known + 1))
