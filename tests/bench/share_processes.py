"""Consumers of work queues in processes of their own, and how long they take for a queue."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["CONSUMERS", "WAIT_S", "ConsumerProcesses"]

WAIT_S = 120.0
CONSUMERS = 16


class ConsumerProcesses:
    """Processes with a consumer of a work queue each. Ended with the block.

    Args:
        count: how many there are.
    """

    def __init__(self, count: int = CONSUMERS) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="hqueue-bench-")  # noqa: SIM115 - Kept.
        self._file.truncate(8 * count)
        self._mapped = mmap.mmap(self._file.fileno(), 0)
        self._counts = memoryview(self._mapped).cast("q")
        self._processes = [self._started(self._file.name, number) for number in range(count)]

    @staticmethod
    def _started(path: str, number: int) -> subprocess.Popen[str]:
        command = (sys.executable, "-m", "tests.bench.share_consumers", path, str(number))
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )  # fmt: skip

    def __enter__(self) -> ConsumerProcesses:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        self._counts.release()
        self._mapped.close()
        self._file.close()

    def run(
        self,
        consumers: int,
        messages: int,
        given: Mapping[str, str],
        meanwhile: Callable[[], None] = lambda: None,
        before: Callable[[], None] = lambda: None,
    ) -> tuple[float, list[float]]:
        """Let consumers take messages and acknowledge them all.

        Args:
            consumers: how many.
            messages: how many messages there are.
            given: what each consumer is made of.
            meanwhile: called once they began.
            before: called once they are made, before they begin.

        Returns:
            How many seconds it took until all were acknowledged, and how many milliseconds each
            message took that has the time of its sending as a value.
        """
        chosen = self._processes[:consumers]
        self._ask(chosen, {"do": "open", **given})
        before()
        began_s = time.monotonic()
        self._ask(chosen, {"do": "begin"})
        meanwhile()
        while sum(self._counts[:consumers]) < messages:
            if time.monotonic() - began_s > WAIT_S or any(p.poll() is not None for p in chosen):
                raise TimeoutError("the consumers did not get all messages, or one has ended")
            time.sleep(0.002)
        answers = self._ask(chosen, {"do": "end"})
        ended_s = max(each["ended_s"] for each in answers)
        return ended_s - began_s, [took for each in answers for took in each["took_ms"]]

    def _ask(
        self, processes: Sequence[subprocess.Popen[str]], command: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
        return [self._answer(process) for process in processes]

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("a process with a consumer has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer
