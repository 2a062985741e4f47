"""A message is known again as a whole, and by its name alone if it came back as another."""

from __future__ import annotations

import random

import pytest

from hqueue import Message

from .messages import KEYS, has_extras, made, name_of, token_of

PUT = Message("t", b"a-1-0|x", b"k", [("n", b"v"), ("n", b"w")])


@pytest.mark.parametrize(
    "other",
    [
        Message("u", PUT.value, PUT.key, PUT.headers),
        Message("t", b"a-1-0|y", PUT.key, PUT.headers),
        Message("t", PUT.value, b"", PUT.headers),
        Message("t", PUT.value, None, PUT.headers),
        Message("t", PUT.value, PUT.key, PUT.headers[::-1]),
        Message("t", PUT.value, PUT.key, PUT.headers[:1]),
        Message("t", PUT.value, PUT.key),
        Message("t", PUT.value),
    ],
)
def test_a_message_that_came_back_as_another_has_another_token(other: Message) -> None:
    assert token_of(other) != token_of(PUT)
    assert name_of(token_of(other)) == name_of(token_of(PUT)) == "a-1-0"


def test_a_name_is_that_of_a_token_of_an_earlier_release_too() -> None:
    assert name_of("a-1-0") == "a-1-0"
    assert not has_extras("a-1-0")


def test_puts_of_both_kinds_are_made() -> None:
    puts = [made(["a", "b"], 3, KEYS, random.Random(seed)) for seed in range(40)]
    extras = [[has_extras(token_of(message)) for message in put] for put in puts]
    plain = sum(not any(put) for put in extras)
    assert 10 <= plain <= 30
    assert {message.key for put in puts for message in put} == set(KEYS)
    assert {len(message.headers) for put in puts for message in put} == {0, 1, 3}
