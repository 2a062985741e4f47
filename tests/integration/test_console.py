"""The console's pages over a cluster: what each shows, and what its forms change."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import httpx
import pytest

import hqueue
from hqueue_workers.console.rendering import size_cell
from tests.support.console import RunningConsole, events_of, running_console
from tests.support.waiting import wait_for

GROUP, SUBSCRIBER = "readers <of orders>", "archive"


@pytest.fixture(scope="module")
def queue(client: hqueue.Client) -> Iterator[hqueue.Queue]:
    """A queue with messages, a group, a subscriber, and dead letters of both."""
    name = "console-walk"
    queue = client.create_queue(name, partitions=2)
    for number in range(20):
        queue.put(hqueue.Message("sales", b'{"number": %d}' % number, b"key-%d" % number))
    with hqueue.Consumer(name, group=GROUP, client=client) as consumer:
        consumed = 0
        while consumed < 20:
            consumed += len(consumer.poll(60_000))
        consumer.commit()
    client.add_subscriber(name, SUBSCRIBER)
    messages = list(queue.scan())
    queue.dead_letters.put(
        hqueue.DeadLetter(message, SUBSCRIBER, "<b>no such customer</b>", attempts=3)
        for message in messages[:3]
    )
    queue.dead_letters.put([hqueue.DeadLetter(messages[3], None, "too large", 2, group=GROUP)])
    yield queue
    queue.close()
    client.delete_queue(name, force=True)


@pytest.fixture(scope="module")
def site(client: hqueue.Client) -> Iterator[RunningConsole]:
    with running_console(client, allow_changes=True) as running:
        yield running


@pytest.fixture
def browser(site: RunningConsole, queue: hqueue.Queue) -> Iterator[httpx.Client]:
    """What a browser is to the console: it keeps cookies, and says where a form comes from."""
    with httpx.Client(base_url=site.address, timeout=60, follow_redirects=True) as client:
        yield client


def read(browser: httpx.Client, path: str, **fields: object) -> str:
    answer = browser.get(path, params={name: str(each) for name, each in fields.items()})
    assert answer.status_code == 200, answer.text
    assert "<script>" not in answer.text
    return answer.text


def token_in(text: str) -> str:
    found = re.search(r'name="token" value="([0-9a-f]{64})"', text)
    assert found is not None
    return found[1]


def send(browser: httpx.Client, path: str, **fields: str) -> httpx.Response:
    return browser.post(path, data=fields, headers={"origin": str(browser.base_url).rstrip("/")})


def confirm(browser: httpx.Client, path: str, question: str, **fields: str) -> str:
    """Send a form, and answer the question with yes."""
    asked = send(browser, path, **fields)
    assert asked.status_code == 200, asked.text
    assert question in asked.text
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', asked.text))
    assert hidden["confirmed"] == "yes"
    done = send(
        browser,
        path,
        **{**fields, "to": hidden["to"]} if "to" in hidden else fields,
        confirmed="yes",
    )
    assert done.status_code == 200, done.text
    assert len(done.history) == 1
    return done.text


def test_queues_show_their_sizes_and_where_their_partitions_lie(
    site: RunningConsole, browser: httpx.Client, queue: hqueue.Queue
) -> None:
    site.measure()
    listed = read(browser, "/queues", name=queue.name)
    assert f'<a href="/queues/{queue.name}">' in listed
    assert '<td class="n">24</td>' in listed  # 20 messages and 4 dead letters.
    assert queue.name not in read(browser, "/queues", name="no-such-queue")
    shown = read(browser, f"/queues/{queue.name}")
    for place in browser_locations(queue, site):
        assert place in shown
    if site.client.settings.hbase == "gateways":
        assert "gateways do not tell sizes" in shown
    else:
        total = sum(
            each.stored_bytes + each.memory_bytes for each in site.client.region_sizes(queue.name)
        )
        assert f'<td class="n">{size_cell(total)}</td>' in listed
        assert f"<dt>Size</dt><dd>{size_cell(total)}" in shown
    assert SUBSCRIBER in shown
    assert "readers &lt;of orders&gt;" in shown


def browser_locations(queue: hqueue.Queue, site: RunningConsole) -> list[str]:
    return [f"{each.host}:{each.port}" for each in site.client.locations(queue.name)]


def test_messages_are_found_and_shown(browser: httpx.Client, queue: hqueue.Queue) -> None:
    path = f"/queues/{queue.name}/messages"
    assert read(browser, path, topic="sales").count('<th scope="row" class="id">') == 20
    found = read(browser, path, topic="sales", key="key-7")
    (address,) = re.findall(rf'href="({path}/\d+/\d+-\d+)"', found)
    shown = read(browser, address)
    assert "&#34;number&#34;: 7" in shown
    assert "00000000  7b 22 6e 75" in shown
    oldest = read(browser, path, start="earliest", rows=3)
    assert "The page is full." in oldest
    assert "Continue" in oldest


def test_a_value_is_downloaded_as_a_file(site: RunningConsole, browser: httpx.Client) -> None:
    value = b"<script>alert(1)</script>" + random.Random(1).randbytes(300 * 1024)
    with site.client.create_queue("console-files", partitions=1) as queue:
        queue.put(hqueue.Message("files", value))
        queue.put(hqueue.Message("files", b""))
        large, empty = queue.scan()
    path = "/queues/console-files/messages/0/"
    assert f'href="{path}{large.id}/value" download' in read(browser, f"{path}{large.id}")
    for message in (large, empty, large, large, large, large):  # Each gives its turn back.
        answer = browser.get(f"{path}{message.id}/value")
        assert answer.content == message.value
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-content-type-options"] == "nosniff"
        name = f"console-files-0-{message.id}.bin"
        assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    for _ in range(8):
        assert browser.get(f"{path}1-0/value").status_code == 400
        with browser.stream("GET", f"{path}{large.id}/value") as stream:
            assert next(stream.iter_bytes())  # It leaves before the end.
    assert browser.get(f"{path}{large.id}/value").content == value
    site.client.delete_queue("console-files", force=True)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("messages?start=nonsense", 400),
        ("messages?rows=201", 400),
        ("messages?rows=%C2%B2", 400),
        ("messages?partition=2", 400),
        ("messages?partition=99999", 400),
        ("messages?topic=" + "x" * 1_001, 400),
        ("messages/0/1-0", 400),
        ("messages/0/nonsense", 400),
        ("dead-letters?group=a&subscriber=b", 400),
        ("topics/view", 400),
        ("topics/view?topic=none", 400),
        ("nothing", 404),
    ],
)
def test_what_is_wrong_in_an_address_gets_an_error(
    browser: httpx.Client, queue: hqueue.Queue, path: str, status: int
) -> None:
    answer = browser.get(f"/queues/{queue.name}/{path}")
    assert answer.status_code == status
    assert 'role="alert"' in answer.text


def test_a_page_follows_new_messages(browser: httpx.Client, queue: hqueue.Queue) -> None:
    path = f"/queues/{queue.name}/tail"
    assert "sse-connect" in read(browser, path, topic="live")
    with browser.stream("GET", f"{path}/stream", params={"topic": "live"}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = events_of(stream)
        assert next(events).data == "Following."
        queue.put(hqueue.Message("other", b"not wanted"))
        queue.put(hqueue.Message("live", b"<i>wanted</i>"))
        row = next(events)
    assert row.name == "row"
    assert "&lt;i&gt;wanted" in row.data


def test_a_group_is_shown_and_reset_after_the_question(
    site: RunningConsole, browser: httpx.Client, queue: hqueue.Queue
) -> None:
    site.measure()
    assert "readers &lt;of orders&gt;" in read(browser, "/groups")
    shown = read(browser, "/groups/view", group=GROUP)
    fields = {"token": token_in(shown), "group": GROUP, "queue": queue.name, "to": "earliest"}
    before = offsets(site, queue)
    question = f"Overwrite the offsets of readers &lt;of orders&gt; in {queue.name}?"
    send(browser, "/groups/reset", **fields)
    assert offsets(site, queue) == before
    done = confirm(browser, "/groups/reset", question, **fields)
    assert "The offsets were set." in done
    assert set(offsets(site, queue)) == {hqueue.MessageID(0, 1)}
    wrong = send(browser, "/groups/reset", **{**fields, "to": "nonsense"})
    assert wrong.status_code == 400
    missing = send(browser, "/groups/reset", **{**fields, "group": "none", "confirmed": "yes"})
    assert missing.status_code in (400, 404)


def offsets(site: RunningConsole, queue: hqueue.Queue) -> list[hqueue.MessageID | None]:
    described = site.client.describe_group(GROUP, queue=queue.name)
    return [each.committed for each in described.partitions]


def test_a_subscriber_is_shown_and_moved_after_a_question(
    site: RunningConsole, browser: httpx.Client, queue: hqueue.Queue
) -> None:
    site.measure()
    shown = read(browser, "/subscribers", queue=queue.name)
    assert "not connected" in shown
    fields = {
        "token": token_in(shown),
        "subscriber": SUBSCRIBER,
        "queue": queue.name,
        "to": "latest",
        "partition": "1",
    }
    question = f"Move the checkpoints of {SUBSCRIBER} in {queue.name}?"
    assert "were moved" in confirm(browser, "/subscribers/seek", question, **fields)
    states = {each.partition: each for each in site.client.list_subscribers(queue.name)}
    assert states[0].checkpoint == hqueue.MessageID(0)
    assert states[1].lag == 0


def test_dead_letters_are_listed_redriven_and_deleted(
    browser: httpx.Client, queue: hqueue.Queue
) -> None:
    path = f"/queues/{queue.name}/dead-letters"
    listed = read(browser, path)
    assert "4 dead letters." in listed
    assert "&lt;b&gt;no such customer&lt;/b&gt;" in listed
    assert "1 dead letters." in read(browser, path, group=GROUP)
    token = token_in(listed)
    letter = next(iter(queue.dead_letters.waiting(SUBSCRIBER)))
    one = {
        "token": token,
        "subscriber": SUBSCRIBER,
        "partition": str(letter.message.partition),
        "id": str(letter.id),
    }
    question = f"Redrive dead letter {letter.id} of {SUBSCRIBER} in {queue.name}?"
    done = confirm(browser, f"{path}/change", question, action="redrive", **one)
    assert "1 redriven." in done
    assert len([*queue.dead_letters.waiting(SUBSCRIBER)]) == 2
    again = send(browser, f"{path}/change", action="redrive", confirmed="yes", **one)
    assert again.status_code == 400
    assert "no such dead letter" in again.text
    all_ = {"token": token, "subscriber": SUBSCRIBER}
    question = f"Delete the listed dead letters of {SUBSCRIBER} in {queue.name}?"
    assert "2 deleted." in confirm(browser, f"{path}/change", question, action="delete", **all_)
    assert [*queue.dead_letters.waiting(SUBSCRIBER)] == []
    assert len([*queue.dead_letters.waiting(group=GROUP)]) == 1


def test_hubs_topics_and_health_are_shown(browser: httpx.Client, queue: hqueue.Queue) -> None:
    assert "No hub is available" in read(browser, "/hubs")
    assert "Hubs own no topic" in read(browser, f"/queues/{queue.name}/topics")
    assert "have not run yet" in read(browser, "/health")


def test_a_form_without_the_sessions_token_changes_nothing(
    site: RunningConsole, browser: httpx.Client, queue: hqueue.Queue
) -> None:
    read(browser, "/queues")
    before = offsets(site, queue)
    fields = {"group": GROUP, "queue": queue.name, "to": "latest", "confirmed": "yes"}
    for token in ("", "0" * 64):
        answer = send(browser, "/groups/reset", token=token, **fields)
        assert answer.status_code == 403
    with httpx.Client(base_url=site.address, timeout=60) as other:
        stolen = token_in(read(other, "/health"))
    assert send(browser, "/groups/reset", token=stolen, **fields).status_code == 403
    assert offsets(site, queue) == before


def test_a_console_that_only_reads_changes_nothing(
    client: hqueue.Client, site: RunningConsole, queue: hqueue.Queue
) -> None:
    with (
        running_console(client) as reading,
        httpx.Client(base_url=reading.address, timeout=60) as browser,
    ):
        token = token_in(read(browser, "/health"))
        assert 'action="/groups/reset"' not in read(browser, "/groups/view", group=GROUP)
        path = f"/queues/{queue.name}/dead-letters"
        assert "Redrive" not in read(browser, path)
        before = offsets(site, queue)
        for address, fields in (
            ("/groups/reset", {"group": GROUP, "queue": queue.name, "to": "latest"}),
            ("/subscribers/seek", {"subscriber": "archive", "queue": queue.name, "to": "latest"}),
            (f"{path}/change", {"group": GROUP, "action": "delete"}),
        ):
            answer = send(browser, address, token=token, confirmed="yes", **fields)
            assert answer.status_code == 403
            assert "--allow-changes" in answer.text
        assert offsets(site, queue) == before
        assert len([*queue.dead_letters.waiting(group=GROUP)]) == 1


def metric(site: RunningConsole, series: str) -> float:
    """A value of the console's metrics; 0 if it is not there yet."""
    text = httpx.get(f"http://127.0.0.1:{site.console.metrics_port}/metrics").text
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def test_the_console_counts_its_requests_refusals_and_streams(
    site: RunningConsole, browser: httpx.Client, queue: hqueue.Queue
) -> None:
    series = 'hqueue_console_requests_total{page="/queues/{queue}/messages",status="%d"}'
    well, wrong = metric(site, series % 200), metric(site, series % 400)
    refused = metric(site, 'hqueue_console_refused_requests_total{status="421"}')
    path = f"/queues/{queue.name}/messages"
    read(browser, path)
    assert browser.get(f"{path}?rows=0").status_code == 400
    assert browser.get(path, headers={"host": "elsewhere"}).status_code == 421
    assert browser.get("/no-page").status_code == 404
    assert metric(site, series % 200) == well + 1
    assert metric(site, series % 400) == wrong + 1
    assert metric(site, 'hqueue_console_refused_requests_total{status="421"}') == refused + 1
    assert metric(site, 'hqueue_console_requests_total{page="other",status="404"}') >= 1
    assert metric(site, 'hqueue_console_request_seconds_count{page="other"}') >= 1
    with browser.stream("GET", f"/queues/{queue.name}/tail/stream") as stream:
        events = events_of(stream)  # httpx ends the stream with it.
        assert next(events).data == "Following."
        wait_for(lambda: metric(site, "hqueue_console_streams") == 1, "the stream is counted")
        assert metric(site, "hqueue_console_connections") >= 1
    wait_for(lambda: metric(site, "hqueue_console_streams") == 0, "the stream has ended")


def test_the_console_says_how_large_queues_are(site: RunningConsole, queue: hqueue.Queue) -> None:
    site.measure()
    labels = f'{{queue="{queue.name}"}}'
    assert metric(site, f"hqueue_console_queue_messages{labels}") >= 20
    if site.client.settings.hbase != "gateways":
        sizes = site.client.region_sizes(queue.name)
        total = sum(each.stored_bytes + each.memory_bytes for each in sizes)
        assert metric(site, f"hqueue_console_queue_bytes{labels}") == total
