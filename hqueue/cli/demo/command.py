"""``hqueue demo``: real messages through a real HBase, and a picture of what happened."""

from __future__ import annotations

import contextlib
import datetime
import functools
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands.inputs import open_input
from hqueue.cli.commands.local import start_server
from hqueue.cli.exits import ExitCode, say
from hqueue.cli.progress import count_text
from hqueue.cli.registering import commands
from hqueue.cli.session import PROGRAM, Session, session_of
from hqueue.errors import HQueueError
from hqueue.runtime.threads import start

if TYPE_CHECKING:
    from hqueue.cli.demo.picture import Result
    from hqueue.cli.demo.sources import Sources
    from hqueue.cli.demo.tally import Tally
    from hqueue.client import Client
    from hqueue.local.server import LocalServer
    from hqueue.queue import Queue

__all__ = ["demo_queue", "program", "register"]

TTL_FIRST, TTL_THEN = "1d", "2d"
BURST_OVER_S = 0.25
"""When nothing came for this long, all that was there at the beginning has been shipped."""

CATCH_UP_S = 30.0


def demo(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files to ship, too; - for stdin."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=3_600, help="How many seconds to ship what HBase logs.")
    ] = 10,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="The queue's partitions.")
    ] = 8,
) -> None:
    """Send real messages through a real HBase, and read them back while they are written.

    Starts the local server if none runs, creates a queue, and ships into it the lines that HBase
    logs or has logged, and the lines of the given files and pipes. A follower reads along, and a
    worker delivers the messages to a listener. At the end all messages are read once more, and a
    Spark job counts them by time window if PySpark is installed. The exit code is 1 if the messages
    that were read differ from those that were put.
    """
    from hqueue.cli.demo.push import check_worker  # noqa: PLC0415  (only for the demo)

    check_worker()
    session = session_of(context)
    for file in files or ():
        open_input(file).close()  # A wrong name is an error before anything is begun.
    server = _server()
    session.close()  # It may have been opened, in a shell, before the server ran.
    settings = session.client.settings
    if settings.hbase == "native" and settings.hbase_masters:
        say(f"The queue is at the HBase of {', '.join(map(str, settings.hbase_masters))}.")
    elif settings.hbase == "native" and settings.zookeeper != server.zookeeper:
        say(f"The queue is at the HBase that {settings.zookeeper} names.")
    elif settings.hbase == "gateways" and settings.gateways != server.gateways:
        say(f"The queue is at {', '.join(map(str, settings.gateways))}.")
    with demo_queue(session.client, partitions) as queue:
        say(f"Shipping the lines that HBase logs, for {seconds:g} s.")
        result = Demo(session, server, queue, files or (), seconds).run()
    _conclude(result)


def _server() -> LocalServer:
    """The server that runs, of whichever profile; one that is started if none does."""
    from hqueue.local import attach, status  # noqa: PLC0415  (brings in what starts processes)

    return attach() if status().ready else start_server()


@contextlib.contextmanager
def demo_queue(client: Client, partitions: int) -> Iterator[Queue]:
    """Create a queue for the demo. If the block fails, the queue is deleted."""
    name = f"demo-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    queue = client.create_queue(
        name, partitions=partitions, ttl=TTL_FIRST, partitions_per_region=min(2, partitions)
    )
    say(f"Created {name} with {count_text(partitions, 'partition')}.")
    try:
        with queue:
            yield queue
    except BaseException:
        with contextlib.suppress(HQueueError):
            client.disable_queue(name)
            client.delete_queue(name)
            say(f"Deleted {name}: the demo did not finish.")
        raise


class Demo:
    """One run."""

    def __init__(
        self,
        session: Session,
        server: LocalServer,
        queue: Queue,
        files: Sequence[str],
        seconds: float,
    ) -> None:
        self._client: Client = session.client
        self._spark_options = session.spark_options
        self._server = server
        self._queue = queue
        self._files = files
        self._seconds = seconds

    def run(self) -> Result:
        """Ship, follow, and look at the outcome.

        Raises:
            HQueueError: something failed that is not the demo's to judge.
        """
        from hqueue.cli.demo.counting import count_elsewhere  # noqa: PLC0415  (only for the demo)
        from hqueue.cli.demo.picture import Result  # noqa: PLC0415
        from hqueue.cli.demo.push import Delivered  # noqa: PLC0415
        from hqueue.cli.demo.tally import Follower, Tally, tally_of  # noqa: PLC0415
        from hqueue.cli.demo.watch import Watch  # noqa: PLC0415

        put = Tally(self._queue.partitions)
        delivered = Delivered(self._queue, self._client.settings)
        follower = Follower(self._queue)
        try:
            with Watch(self._queue, put, follower, delivered) as watch:
                burst, burst_s = self._ship(put)
                follower.wait(put.total, CATCH_UP_S)
                delivered.wait(put.total, CATCH_UP_S)
        finally:
            follower.close()
            delivered.close()
        scanned, scan_s = tally_of(self._queue)
        counted = count_elsewhere(self._queue.name, self._spark_options)
        return Result(
            queue=self._queue.name,
            put=put,
            followed=follower.tally,
            delivered=delivered.tally,
            scanned=scanned,
            counted=counted,
            put_seconds=burst_s,
            put_burst=burst,
            scan_seconds=scan_s,
            age_ms=follower.age_ms,
            delivered_age_ms=delivered.age_ms,
            lag_max=watch.lag_max,
            locations=self._client.locations(self._queue.name),
            offsets=self._queue.offsets(),
        )

    def _ship(self, put: Tally) -> tuple[int, float]:
        """Ship all sources; how many messages the first burst had, and its seconds."""
        from hqueue.cli.commands.shipment import BUFFER_BYTES_MAX, Shipment  # noqa: PLC0415

        sources = self._sources()
        changing: threading.Thread | None = None
        burst: tuple[int, float] | None = None
        shipment = Shipment(self._queue.producer(buffer_bytes_max=BUFFER_BYTES_MAX))
        try:
            while not sources.ended and shipment.error is None and sources.error is None:
                item = sources.next(timeout_s=BURST_OVER_S)
                if item is not None:
                    shipment.send(item.message, partition=item.partition)
                    put.add(item.partition, item.message)
                elif burst is None:
                    burst = put.total, shipment.seconds - BURST_OVER_S
                    changing = start(self._change_ttl, name="hqueue-demo-ttl")
        finally:
            shipment.close()
        error = shipment.error or sources.error
        if error is not None:
            raise error
        if changing is not None:
            changing.join()
        return burst or (put.total, shipment.seconds)

    def _sources(self) -> Sources:
        from hqueue.cli.demo.sources import Sources, file_items, log_items  # noqa: PLC0415

        count, folder = self._queue.partitions, self._server.logs_dir
        return Sources(
            [
                functools.partial(log_items, folder, count, self._seconds),
                *(
                    functools.partial(file_items, name, count, self._seconds)
                    for name in self._files
                ),
            ]
        )

    def _change_ttl(self) -> None:
        """Alter the queue while messages flow: its regions are reopened, and HBase logs that."""
        try:
            self._client.alter_queue(self._queue.name, ttl=TTL_THEN)
        except HQueueError as exc:
            say(f"The queue was not altered: {exc}")


def _conclude(result: Result) -> None:
    """Show the outcome, and judge it.

    Raises:
        typer.Exit: what was read is not what was put.
    """
    from hqueue.cli.demo.picture import show_picture  # noqa: PLC0415  (only for the demo)

    show_picture(result)
    found = result.followed.differences(result.put, "followed")
    found += result.delivered.differences(result.put, "delivered")
    found += result.scanned.differences(result.put, "scanned")
    if result.counted is not None and result.counted.messages != result.put.total:
        found.append(f"Spark counted {count_text(result.counted.messages, 'message')}")
    found += [
        f"partition {location.partition}: {count_text(lag, 'message')} behind"
        for location in result.locations
        if (lag := result.lag(location.partition))
    ]
    if not result.put.total:
        found.append("nothing came in: there are no logs, and no file with lines was given")
    if found:
        for text in found:
            say(f"hqueue: error: {text}")
        raise typer.Exit(ExitCode.FAILED)
    name = result.queue
    called = program()
    print(
        f"checked   each of them got every message, and each partition in its order\n\n"
        f"Try next:\n"
        f"  {called} tail {name} -n 5 --follow\n"
        f"  {called} scan {name} --topic WARN --start -10m --format json\n"
        f"  {called} tail {name} --print-key --print-headers\n"
        f"  echo hello | {called} put {name} --topic greetings --print-ids\n"
        f"  {called} describe {name}\n"
        f"  {called} pipeline statistics {name} --plot demo.png\n"
        f"  {called} shell                 and there: disable '{name}', delete '{name}'\n"
        f"  {called} local stop            the server runs on until then; its data stays"
    )


def program(python: str = sys.executable) -> str:
    """How this command line is called here: its path where a shell does not find its name."""
    if shutil.which(PROGRAM) is not None:
        return PROGRAM
    beside = Path(python).with_name(PROGRAM)
    if beside.exists():
        return shlex.quote(str(beside))
    return shlex.join([python, "-m", "hqueue.cli"])


register = commands("Local server", demo)
