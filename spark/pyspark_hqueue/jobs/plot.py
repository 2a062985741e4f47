"""A picture of a queue's statistics. Needs matplotlib: ``hqueue-hbase[plot]``."""

from __future__ import annotations

import datetime

from hqueue import InvalidInputError, SettingsError
from hqueue.cli.progress import count_text
from hqueue.runtime.extras import installing
from pyspark_hqueue.jobs.queue_statistics import Statistics

__all__ = ["check_plot", "plot"]

GROUPS = 8
SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(path: str) -> None:
    """Refuse what can't be drawn, before anything is counted.

    Raises:
        InvalidInputError: the file's name says no format that is known.
        SettingsError: matplotlib is not installed.
    """
    if not path.lower().endswith(SUFFIXES):
        raise InvalidInputError("a plot must be a .png, .svg or .pdf file", path=path)
    try:
        import matplotlib.figure  # noqa: F401, PLC0415  (an extra)
    except ImportError as exc:
        raise SettingsError(
            f"a package that plots need is not installed: {installing('plot')}"
        ) from exc


def plot(statistics: Statistics, path: str) -> None:
    """Draw messages and bytes a second by time, the largest groups apart, into a file.

    Raises:
        InvalidInputError: the file can't be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415

    seconds = statistics.window_ms / 1e3
    windows = statistics.windows()
    largest = [count.group for count in statistics.groups()[:GROUPS]]
    figure = Figure(figsize=(10, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    places = [datetime.datetime.fromtimestamp(ms / 1e3, datetime.timezone.utc) for ms in windows]
    width = datetime.timedelta(milliseconds=statistics.window_ms)
    floor_messages, floor_bytes = [0.0] * len(places), [0.0] * len(places)
    for group in (*largest, None):
        counts = [
            [
                c
                for c in found
                if (c.group == group if group is not None else c.group not in largest)
            ]
            for found in windows.values()
        ]
        if not any(counts):
            continue
        messages = [sum(c.messages for c in some) / seconds for some in counts]
        sizes = [sum(c.bytes for c in some) / seconds for some in counts]
        label = "others" if group is None else group.replace("$", r"\$")[:40]
        above.bar(places, messages, width, floor_messages, align="edge", label=label)
        below.bar(places, sizes, width, floor_bytes, align="edge")
        floor_messages = [a + b for a, b in zip(floor_messages, messages, strict=True)]
        floor_bytes = [a + b for a, b in zip(floor_bytes, sizes, strict=True)]
    above.set_title(f"{statistics.queue}: {count_text(statistics.messages, 'message')}")
    above.set_ylabel("messages/s")
    below.set_ylabel("bytes/s")
    below.set_xlabel("UTC")
    if places:
        above.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        figure.autofmt_xdate()
    try:
        figure.savefig(path, dpi=120)
    except OSError as exc:
        raise InvalidInputError("a plot can't be written", path=path, reason=str(exc)) from exc
