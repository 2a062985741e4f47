"""Keys and headers of messages, generated."""

from __future__ import annotations

from hypothesis import strategies as st

from hqueue.message import Headers

__all__ = ["headers", "keys"]

keys: st.SearchStrategy[bytes | None] = st.none() | st.binary(max_size=20)

_names = st.sampled_from(["a", "", "ü\x00"]) | st.text(
    st.characters(exclude_categories=("Cs",)), max_size=8
)
headers: st.SearchStrategy[Headers] = st.just(()) | st.lists(
    st.tuples(_names, st.binary(max_size=12)), max_size=4
).map(tuple)
"""None in half of all; names come again, in any order, and names and values may be empty."""
