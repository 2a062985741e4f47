"""Numbers as pages show them."""

from __future__ import annotations

import pytest

from hqueue_workers.console.history import Sample, Series
from hqueue_workers.console.rendering import rate_text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "-"),
        ([7], "-"),
        ([7, 7], "0"),
        ([0, 1], "<0.1"),
        ([0, 3], "0.1"),
        ([0, 45], "1.5"),
        ([0, 36_000], "1,200"),
        ([9, 0], "0"),  # The queue was created again.
    ],
)
def test_a_small_rate_is_not_shown_as_none(values: list[int], text: str) -> None:
    series = Series()
    series.samples.extend(Sample(30.0 * number, value) for number, value in enumerate(values))
    assert rate_text(series) == text
