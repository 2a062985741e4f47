"""The console in Chromium over real servers and hubs: it shows what the command line shows."""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import hqueue
from hqueue import Message, local
from tests.integration.console.over_servers import (
    SHOWN_MS,
    asked_by_the_command_line,
    hasty_console,
)
from tests.integration.hub_processes import HubProcess, hub_environment
from tests.support.command_line import run_here
from tests.support.console import RunningConsole
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.servers]

QUEUE = "console-on-servers"


@pytest.fixture(scope="module")
def client(server: local.LocalServer) -> Iterator[hqueue.Client]:
    with hqueue.connect(settings=server.settings(hbase="native")) as client:
        client.create_queue(QUEUE, partitions=2, ttl="1d").close()
        yield client
        client.delete_queue(QUEUE, force=True)


@pytest.fixture(scope="module")
def site(client: hqueue.Client, server: local.LocalServer) -> Iterator[RunningConsole]:
    with hasty_console(server) as running:
        yield running


@pytest.fixture
def page(browser: Browser, site: RunningConsole) -> Iterator[Page]:
    with browser.new_context(base_url=site.address) as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        yield page


def cells_of(table: Locator) -> list[dict[str, str]]:
    """The rows of a table, each by the titles of its columns."""
    titles = table.locator("th[scope=col]").all_inner_texts()
    rows = table.locator("tbody tr").all()
    return [dict(zip(titles, row.locator("th, td").all_inner_texts(), strict=True)) for row in rows]


def test_the_owner_of_a_topic_moves_while_its_page_is_open(
    page: Page, server: local.LocalServer, server_environment: Mapping[str, str]
) -> None:
    environment = hub_environment(server, server_environment, "zookeeper")
    with contextlib.ExitStack() as stack:
        hubs = [stack.enter_context(HubProcess(QUEUE, environment)) for _ in range(2)]
        by_address = {hub.address: hub for hub in hubs}
        for hub in hubs:
            wait_for(lambda hub=hub: hub.page("/health"), "a hub is well")
        publisher = stack.enter_context(hqueue.connect_hubs([*by_address], queue=QUEUE))
        topic = publisher.topic("clicks")
        received: list[bytes] = []
        subscription = topic.subscribe(
            "archive", lambda messages: received.extend(each.value for each in messages)
        )
        stack.callback(subscription.close)
        for number in range(3):
            topic.publish(b"%d" % number)
        wait_for(lambda: len(received) >= 3, "the subscriber has all")
        page.goto("/hubs")
        for address in by_address:
            expect(page.locator("#live")).to_contain_text(address)
        page.goto(f"/queues/{QUEUE}/topics")
        page.get_by_role("link", name="clicks").click()
        expect(page.locator("h1")).to_have_text("Topic clicks")
        expect(page.locator("table").first).to_contain_text("archive")
        owner = page.locator(".facts dd").first
        first = owner.inner_text()
        by_address.pop(first).kill()
        (second,) = by_address
        topic.publish(b"3")
        expect(owner).to_have_text(second, timeout=SHOWN_MS)  # Without a click.
        ranges = page.locator("table").nth(1).locator("tbody tr")
        expect(ranges.nth(1)).to_be_visible(timeout=SHOWN_MS)  # The new owner's.
        wait_for(lambda: b"3" in received, "the subscriber goes on")
        page.get_by_role("link", name="show").click()
        expect(page.locator("#found tbody tr")).to_have_count(4)
        page.goto("/hubs")
        expect(page.locator("#live")).not_to_contain_text(first, timeout=SHOWN_MS)
        by_address.pop(second).kill()
        expect(page.locator("#live")).to_contain_text("No hub is available", timeout=SHOWN_MS)
        page.goto(f"/queues/{QUEUE}/topics/view?topic=clicks")
        expect(owner).to_have_text("none")


@pytest.fixture(scope="module")
def mails(client: hqueue.Client) -> None:
    with client.queue(QUEUE) as queue:
        for number in range(9):
            queue.put(Message("mails", b"%d" % number), partition=0)


@contextlib.contextmanager
def sharing(
    client: hqueue.Client, group: str
) -> Iterator[tuple[hqueue.ShareConsumer, list[hqueue.typing.AcquiredMessage]]]:
    """A consumer of a new share group that has answered for six of the mails, and holds three."""
    options: dict[str, Any] = {"start": "earliest", "lock_ms": 300_000, "auto_acknowledge": False}
    with hqueue.ShareConsumer(
        QUEUE, group=group, topics=["mails"], client=client, **options
    ) as consumer:
        held = polled(consumer, 9)
        consumer.acknowledge(*held[:3])
        consumer.reject(held[3], reason="<i>no such address</i>")
        consumer.reject(held[4], reason="it failed too often", exhausted=True)
        consumer.release(held[5], until=datetime.timedelta(minutes=10))
        consumer.commit()
        yield consumer, held


def polled(consumer: hqueue.ShareConsumer, count: int) -> list[hqueue.typing.AcquiredMessage]:
    found: list[hqueue.typing.AcquiredMessage] = []
    ends_s = time.monotonic() + 60
    while len(found) < count and time.monotonic() < ends_s:
        found += consumer.poll(1_000)
    return found


def shown_of(page: Page) -> dict[str, str]:
    """What the page of a group shows of the first partition."""
    return cells_of(page.locator("table").first)[0]


@pytest.mark.usefixtures("mails")
def test_a_share_group_is_shown_as_it_is_described(page: Page, client: hqueue.Client) -> None:
    with sharing(client, "senders") as (consumer, held):
        described = client.describe_group("senders", queue=QUEUE).partitions[0]
        page.goto("/groups?name=senders")
        expect(page.locator("#live tbody tr").first).to_contain_text("share")
        page.get_by_role("link", name="senders").first.click()
        shown = shown_of(page)
        titles = ("Acquired", "Released", "Delayed", "Rejected", "Exhausted", "Holders")
        assert [shown[title] for title in titles] == ["3", "0", "1", "1", "1", "1"]
        assert described.lag is not None
        assert shown["Lag"] == str(described.lag.messages)
        expect(page.locator("table").nth(1)).to_contain_text(consumer.consumer_id)
        consumer.release(*held[6:])
        consumer.commit()
    page.reload()
    shown = shown_of(page)
    assert [shown[title] for title in titles] == ["0", "3", "1", "1", "1", "0"]


@pytest.mark.usefixtures("mails")
def test_dead_letters_are_redriven_after_the_question(
    page: Page, client: hqueue.Client, server_environment: Mapping[str, str]
) -> None:
    with sharing(client, "returners") as (consumer, held):
        page.goto(f"/queues/{QUEUE}/dead-letters?group=returners")
        expect(page.locator("table tbody tr")).to_have_count(2)
        expect(page.locator("table")).to_contain_text("<i>no such address</i>")
        command = ("dead-letters", QUEUE, "--group", "returners", "--delete-all")
        asked = asked_by_the_command_line(server_environment, *command)
        page.get_by_role("button", name="Delete all listed…").click()
        expect(page.locator("h1")).to_have_text(asked)
        page.get_by_role("link", name="No, go back").click()
        page.get_by_role("button", name="Redrive all listed…").click()
        # The command line does not ask before a redrive, which destroys nothing.
        expect(page.locator("h1")).to_have_text(asked.replace("Delete", "Redrive"))
        page.get_by_role("button", name="Yes").click()
        expect(page.locator(".done")).to_have_text("2 redriven.")
        redriven = polled(consumer, 2)
        assert {each.value for each in redriven} == {held[3].value, held[4].value}


@pytest.mark.usefixtures("mails")
def test_a_group_is_reset_after_the_question(
    page: Page, client: hqueue.Client, server_environment: Mapping[str, str]
) -> None:
    with sharing(client, "again") as (consumer, held):
        consumer.acknowledge(*held[6:])
    command = ("groups", "reset", "again", QUEUE, "--to", "earliest")
    asked = asked_by_the_command_line(server_environment, *command)
    assert "Its delayed message is lost to it" in asked
    page.goto("/groups/view?group=again")
    for answer, delayed in (("No, go back", "1"), ("Yes", "0")):
        page.get_by_label("To", exact=True).fill("earliest")
        page.get_by_role("button", name="Reset…").click()
        expect(page.locator("h1")).to_have_text(asked)
        page.locator("main").get_by_text(answer, exact=True).click()
        expect(page.locator("h1")).to_have_text("Group again")
        assert shown_of(page)["Delayed"] == delayed
    expect(page.locator(".done")).to_have_text("The offsets were set.")
    described = client.describe_group("again", queue=QUEUE).partitions[0]
    assert described.lag is not None
    assert shown_of(page)["Lag"] == str(described.lag.messages)
    assert described.lag.messages >= 9


def search(page: Page, address: str) -> None:
    """Load a page of messages, again if its search ended at its bound: machines are slow."""

    def ended() -> bool:
        answer = page.goto(address)
        assert answer is not None
        bound = "The search ended at its bound"
        return answer.status == 200 and bound not in page.locator("#found").inner_text()

    wait_for(ended, "a search comes to its end")


def found_by_the_console(page: Page, fields: Mapping[str, object]) -> list[tuple[int, str]]:
    """The partitions and IDs of a search, over all its pages."""
    asked = "&".join(f"{name}={quote(str(each))}" for name, each in fields.items())
    search(page, f"/queues/{QUEUE}/messages?rows=40&{asked}")
    pages: list[list[tuple[int, str]]] = []
    while True:
        rows = page.evaluate(
            "[...document.querySelectorAll('#found tbody tr')].map(row =>"
            " [Number(row.cells[1].textContent), row.cells[2].textContent])"
        )
        pages.append([(partition, id_) for partition, id_ in rows])
        following = page.locator("p.pages a")
        if not following.count():
            break
        search(page, following.get_attribute("href") or "")
    if "start" not in fields:  # The newest are shown first.
        pages = [rows[::-1] for rows in reversed(pages)]
    return [row for rows in pages for row in rows]


def found_by_the_command_line(
    environment: Mapping[str, str], fields: Mapping[str, object]
) -> list[tuple[int, str]]:
    """The same by ``hqueue scan``, which has no options for keys and texts."""
    options = [
        part
        for name in ("partition", "start", "topic")
        if name in fields
        for part in (f"--{name}", str(fields[name]))
    ]
    command = ["scan", QUEUE, "--merge-sorted", "--format", "json", *options]
    code, out, err = run_here(command, b"", environment)
    assert code == 0, err
    documents = [(line.decode().lower(), json.loads(line)) for line in out.splitlines()]
    return [
        (document["partition"], document["id"])
        for line, document in documents
        if fields.get("key") in (None, document.get("key"))
        and str(fields.get("text", "")).lower() in line
    ]


def test_a_search_finds_what_the_command_line_finds(
    page: Page, client: hqueue.Client, server_environment: Mapping[str, str]
) -> None:
    with client.queue(QUEUE) as queue:
        for number in range(30):
            value = b'{"order": %d, "drink": "%s"}' % (number, (b"Tee", b"Caf\xc3\xa9")[number % 2])
            key, headers = b"customer-%d" % (number % 4), [("trace", b"span-%d" % number)]
            batch = [Message(topic, value, key, headers) for topic in ("sales", "returns")]
            queue.put(batch, partition=number % 2)
        middle = [*queue.scan(partition=1, topics=["sales"])][7].id
    time_text = datetime.datetime.fromtimestamp(
        middle.timestamp / 1e3, datetime.timezone.utc
    ).isoformat(timespec="milliseconds")
    counts = []
    for fields in (
        {},
        {"start": "earliest"},
        {"partition": 1},
        {"partition": 0, "start": "earliest", "topic": "returns"},
        {"start": middle},
        {"start": middle, "partition": 1, "topic": "sales"},
        {"start": time_text, "topic": "sales"},
        {"start": middle.timestamp, "partition": 0},
        {"start": "-1h"},
        {"start": "earliest", "key": "customer-3"},
        {"key": "customer-2", "topic": "sales", "partition": 0},
        {"start": "earliest", "text": "CAFé"},
        {"text": "span-17"},
        {"start": "earliest", "text": "nothing has this"},
    ):
        found = found_by_the_console(page, fields)
        assert found == found_by_the_command_line(server_environment, fields), fields
        counts.append(len(found))
    assert counts[0] == counts[1] > 60
    assert counts[3:7] != [0, 0, 0, 0]
    assert counts[-2:] == [2, 0]


def test_the_sizes_of_partitions_are_shown(page: Page, client: hqueue.Client) -> None:
    sizes = client.region_sizes(QUEUE)
    page.goto(f"/queues/{QUEUE}")
    rows = page.locator("table").first.locator("tbody tr")
    expect(rows).to_have_count(len(sizes))
    expect(rows.first).to_contain_text("MB")
