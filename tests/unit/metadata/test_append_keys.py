"""Who may vouch for a batch, and for how long."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.append_keys import (
    PREVIOUS_VALID_MS,
    RENEW_AFTER_MS,
    AppendKey,
    AppendKeys,
    sign,
)
from hqueue.metadata.encoding import decode_append_keys, encode_append_keys
from hqueue.metadata.ports import NEW

KEY = AppendKey(b"\x01" * 8, b"\x02" * 32, 1_700_000_000_000)
OTHER = AppendKey(b"\x03" * 8, b"\x04" * 32, 1_700_000_000_000 - RENEW_AFTER_MS)
KEYS = AppendKeys(KEY, OTHER, 7)


def vouched(keys: AppendKeys, by: AppendKey, now_ms: float) -> bool:
    mac = sign(by, "q", 3, 1 << 40, header=b"h", cells={b"t": b"c"})
    return keys.vouch(
        by.id, mac, now_ms, queue="q", partition=3, slot=1 << 40, header=b"h", cells={b"t": b"c"}
    )


def test_the_mac_is_of_the_bytes_that_the_docs_draw() -> None:
    signed = bytes.fromhex(
        "68717565756520617070656e6400"  # hqueue append
        "0002"
        "7173"  # qs
        "0003"
        "0000010000000000"  # partition 3, slot 2^40
        "00000002"
        "4848"  # HH
        "0002"
        "0001"
        "61"
        "00000001"
        "ff"  # two cells: a
        "0001"
        "62"
        "00000000"  # b
    )
    mac = sign(KEY, "qs", 3, 1 << 40, header=b"HH", cells={b"b": b"", b"a": b"\xff"})
    assert mac == hmac.new(KEY.secret, signed, hashlib.sha256).digest()


def test_nothing_can_be_moved_from_one_part_to_the_next() -> None:
    macs = {
        sign(KEY, queue, partition, slot, header=header, cells=cells)
        for queue, partition, slot, header, cells in (
            ("q", 1, 2, b"h", {b"t": b"c"}),
            ("q", 1, 2, b"", {b"t": b"c"}),
            ("q", 1, 2, b"ht", {b"": b"c"}),
            ("q", 1, 2, b"h", {b"tc": b""}),
            ("q", 1, 2, b"h", {b"t": b"", b"c": b""}),
            ("q", 1, 2, b"h", {b"t": b"c", b"": b""}),
            ("qq", 1, 2, b"h", {b"t": b"c"}),
            ("q", 2, 1, b"h", {b"t": b"c"}),
        )
    }
    assert len(macs) == 8


def test_the_key_before_counts_for_ten_minutes_and_a_stranger_s_never() -> None:
    stranger = AppendKey(KEY.id, b"\x05" * 32, KEY.created_ms)
    assert vouched(KEYS, KEY, KEY.created_ms)
    assert vouched(KEYS, OTHER, KEY.created_ms + PREVIOUS_VALID_MS - 1)
    assert not vouched(KEYS, OTHER, KEY.created_ms + PREVIOUS_VALID_MS)
    assert not vouched(KEYS, stranger, KEY.created_ms)
    assert not vouched(AppendKeys(KEY), OTHER, KEY.created_ms)


def test_keys_are_renewed_each_day_and_when_a_clock_was_far_ahead() -> None:
    keys, now_ms = AppendKeys(KEY, revision=3), KEY.created_ms
    assert not keys.needs_renewal(now_ms + RENEW_AFTER_MS - 1)
    assert keys.needs_renewal(now_ms + RENEW_AFTER_MS)
    assert keys.needs_renewal(now_ms - RENEW_AFTER_MS)
    renewed = keys.renewed(now_ms + RENEW_AFTER_MS)
    assert (renewed.previous, renewed.revision) == (KEY, 3)
    assert renewed.current.id != KEY.id
    assert renewed.current.secret != KEY.secret


def test_the_record_is_read_as_it_was_written_and_shows_no_secret() -> None:
    data = encode_append_keys(KEYS)
    assert json.loads(data) == {
        "version": 1,
        "keys": [
            {"id": "01" * 8, "secret": "02" * 32, "created_ms": 1_700_000_000_000},
            {"id": "03" * 8, "secret": "04" * 32, "created_ms": OTHER.created_ms},
        ],
    }
    assert decode_append_keys(data, "here", 7) == KEYS
    assert decode_append_keys(encode_append_keys(AppendKeys(KEY)), "here", NEW) == AppendKeys(KEY)
    assert "\\x02\\x02" not in repr(KEYS)


@pytest.mark.parametrize(
    "keys",
    [
        [],
        None,
        [{"id": "01" * 8, "created_ms": 1}],
        [{"id": "01" * 8, "secret": "77", "created_ms": 1}],
        [{"id": "01" * 8, "secret": "zz" * 32, "created_ms": 1}],
        [{"id": "01" * 8, "secret": 77, "created_ms": 1}],
    ],
)
def test_a_record_that_is_no_keys_is_an_error_that_shows_no_secret(keys: object) -> None:
    data = json.dumps({"version": 1, "keys": keys}).encode()
    with pytest.raises(UnsupportedFormatError) as caught:
        decode_append_keys(data, "here", 0)
    assert "77" not in str(caught.value)
