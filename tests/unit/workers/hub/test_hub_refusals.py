"""What ports answer callers without a right; and nobody uses another principal's handles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from hqueue import Address, Message
from hqueue.rpc.services import load
from hqueue_workers.api.structs import API, SERVICE
from hqueue_workers.hub.serving.service import hub_service
from tests.support.certificates import Certificates
from tests.support.secured_hubs import QUEUE, RULES, RuledHubs
from tests.support.waiting import wait_for

HUB, STRUCTS = load("hub"), load("subscriber")
FIRST, MESSAGE = STRUCTS.TMessageID(0, 0), STRUCTS.TMessage(topic=b"t", value=b"v")
ATTACH = HUB.TSubscribeMode.CREATE_OR_ATTACH
NOWHERE = HUB.TDelivery("127.0.0.1", 9, "sess7", False)
HUB_CALLS: dict[str, tuple[Any, ...]] = {
    "publish": (QUEUE, "app", "t", MESSAGE, False),
    "publishMessages": (QUEUE, "app", "t", [MESSAGE], False),
    "publishOnce": (QUEUE, "app", "t", [MESSAGE], 0, None, False),
    "newestNumber": (QUEUE, "app", "t", None, False),
    "moveTopic": (QUEUE, "app", "t", "{host}", "{port}", False),
    "deleteTopic": (QUEUE, "app", "t", False),
    "changeAccess": (QUEUE, "app", "t", HUB.TTopicAccess(publish=["*"]), False),
    "subscribe": (QUEUE, "app", "t", ATTACH, NOWHERE, None, False),
    "unsubscribe": (QUEUE, "app", "t", False),
    "closeSubscription": (QUEUE, "app", "t", "sess7"),
    "consume": (QUEUE, "app", "t", FIRST, False),
    "detached": (QUEUE, "sess7", 0),
    "apiAddress": (),
}
API_CALLS: dict[str, tuple[Any, ...]] = {
    "messageScannerOpen": (QUEUE, 0, API.TMessageScan()),
    "messageScannerGet": ("{scanner}",),
    "messageScannerGetList": ("{scanner}", 9),
    "messageScannerClose": ("{scanner}",),
    "putMessage": (QUEUE, MESSAGE),
    "putMessages": (QUEUE, [MESSAGE]),
    "putMessageWithPid": (QUEUE, 0, MESSAGE),
    "putMessagesWithPid": (QUEUE, 0, [MESSAGE]),
    "put": (API.TPut(QUEUE, [MESSAGE]),),
    "currentPosition": (QUEUE,),
    "getQueueLocations": (QUEUE,),
}


class Scene:
    """A hub at which ``app`` has a subscription attached, and a scanner of the Thrift API."""

    def __init__(self, hubs: RuledHubs, **settings: Any) -> None:
        self.hubs = hubs
        hubs.change("grant", "app", "create,publish,read,subscribe,unsubscribe", queue=QUEUE)
        hubs.change("grant", "reader", "read", queue=QUEUE)
        hubs.change("grant", "helper", "subscribe", name="app")
        self.hub = hubs.hub(**RULES, api_port=0, **settings)
        assert self.hub.hub.api is not None
        self.api: Address = self.hub.hub.api.address
        hubs.queue.put([Message("t", b"1"), Message("t", b"2")], partition=0)
        self.app = hubs.stack.enter_context(hubs.calls("app", self.hub.address))
        self.app.subscribe(*HUB_CALLS["subscribe"])
        self.app_scans = hubs.stack.enter_context(hubs.calls("app", self.api, SERVICE))
        self.scanner = self.app_scans.messageScannerOpen(*API_CALLS["messageScannerOpen"])
        assert self.app_scans.messageScannerGet(self.scanner).value == b"1"

    def refused(self, principal: str, method: str) -> Any:
        """What a call of either port is answered with: an exception that the IDL declares for the
        call, or its result.
        """
        is_hub = method in HUB_CALLS
        arguments = (HUB_CALLS if is_hub else API_CALLS)[method]
        handles = {
            "{scanner}": self.scanner,
            "{host}": self.hub.address.host,
            "{port}": self.hub.address.port,
        }
        given = [handles.get(each, each) if isinstance(each, str) else each for each in arguments]
        at, service = (self.hub.address, hub_service()) if is_hub else (self.api, SERVICE)
        spec = getattr(service, f"{method}_result").thrift_spec
        declared = tuple(field[2] for number, field in spec.items() if number)
        with self.hubs.calls(principal, at, service) as calls:
            try:
                return getattr(calls, method)(*given)
            except declared as exc:
                return exc


@pytest.fixture
def hubs(certificates: Certificates) -> Iterator[RuledHubs]:
    with contextlib.ExitStack() as stack:
        yield RuledHubs(stack, certificates)


def test_every_call_of_a_hub_declares_what_a_caller_without_the_right_gets(
    hubs: RuledHubs,
) -> None:
    scene = Scene(hubs)
    assert set(HUB_CALLS) == set(HUB.HQueueHubService.thrift_services)
    others = {
        "closeSubscription": HUB.TNoSuchSubscription,
        "detached": HUB.TIllegalArgument,
        "apiAddress": (str, bytes),
    }
    for method in HUB_CALLS:
        answer = scene.refused("worker", method)
        assert isinstance(answer, others.get(method, HUB.TNotAllowed)), method
    sessions = scene.hub.hosted(QUEUE).subscriptions.sessions
    assert sessions.find("t", "app") is not None, "it is attached as before"


@pytest.mark.parametrize("api_principals", ["*", "app"], ids=["rules", "port"])
def test_every_call_of_the_thrift_api_declares_what_a_caller_without_the_right_gets(
    hubs: RuledHubs, api_principals: str
) -> None:
    scene = Scene(hubs, api_principals=api_principals)
    assert set(API_CALLS) == set(API.HQueueService.thrift_services)
    for method, arguments in API_CALLS.items():
        answer = scene.refused("worker", method)
        if api_principals == "*" and "{scanner}" in arguments:
            assert isinstance(answer, API.TScannerNotFound), method
        else:
            assert isinstance(answer, API.TIllegalArgument), method
            assert answer.notAllowed, method
            assert "principal" in str(answer.message), method
    with pytest.raises(API.TIllegalArgument) as caught:
        scene.app_scans.messageScannerOpen(QUEUE, 99, API.TMessageScan())
    assert caught.value.notAllowed is None, "there is no such partition"


def test_a_session_is_its_principals_alone(hubs: RuledHubs) -> None:
    scene = Scene(hubs)
    with hubs.calls("ops", scene.hub.address) as root:
        root.unsubscribe(QUEUE, "app", "t", False)
    for thief in ("worker", "helper", "ops"):
        answer = scene.refused(thief, "detached")
        assert isinstance(answer, HUB.TIllegalArgument)
        assert "no subscriptions of the session" in str(answer.message)
    (told,) = scene.app.detached(QUEUE, "sess7", 500)
    assert told.reason == HUB.TDetachedReason.UNSUBSCRIBED


def test_a_session_of_the_same_name_but_of_another_principal_is_another_one(
    hubs: RuledHubs,
) -> None:
    scene = Scene(hubs)
    with hubs.calls("helper", scene.hub.address) as helper:
        helper.subscribe(*HUB_CALLS["subscribe"])
        (told,) = scene.app.detached(QUEUE, "sess7", 500)
        assert told.reason == HUB.TDetachedReason.REPLACED
        with pytest.raises(HUB.TNoSuchSubscription):
            scene.app.closeSubscription(QUEUE, "app", "t", "sess7")
        assert helper.detached(QUEUE, "sess7", 0) == []
        helper.closeSubscription(QUEUE, "app", "t", "sess7")


def test_a_client_ends_what_it_has_attached_without_a_right(hubs: RuledHubs) -> None:
    scene = Scene(hubs)
    sessions = scene.hub.hosted(QUEUE).subscriptions.sessions
    with hubs.calls("helper", scene.hub.address) as helper:
        helper.subscribe(*HUB_CALLS["subscribe"])
        found = sessions.find("t", "app")
        assert found is not None
        scene.hub.hosted(QUEUE).topics.check_name = lambda *_: pytest.fail("no right is asked for")
        helper.closeSubscription(QUEUE, "app", "t", "sess7")
    assert sessions.find("t", "app") is None


def test_a_scanner_is_its_principals_alone(hubs: RuledHubs) -> None:
    scene = Scene(hubs)
    for thief in ("reader", "ops", "worker"):
        for method in ("messageScannerGet", "messageScannerGetList", "messageScannerClose"):
            answer = scene.refused(thief, method)
            assert isinstance(answer, API.TScannerNotFound), (thief, method)
    with hubs.calls("app", scene.api, SERVICE) as again:
        assert again.messageScannerGet(scene.scanner).value == b"2"
        again.messageScannerClose(scene.scanner)
    with hubs.calls("reader", scene.api, SERVICE) as reader:
        opened = wait_for(lambda: reader.messageScannerOpen(QUEUE, 0, API.TMessageScan()), "open")
        assert len(reader.messageScannerGetList(opened, 9)) == 2
