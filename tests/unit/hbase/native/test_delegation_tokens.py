"""Clients that prove themselves by a token, and those that get one: by both transports."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import Outcome, RequestRefusedError, Settings, SettingsError, StoreUnavailableError
from hqueue.errors import AuthenticationError
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.delegation_tokens import DelegationTokens
from hqueue.hbase.native.exchanges import Request
from hqueue.hbase.native.masters_registry import MastersRegistry
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.security import Security
from hqueue.hbase.native.servers import Servers
from hqueue.net.contexts import TlsContexts
from hqueue.net.refusals import RefusedError
from hqueue.net.tls_files import TlsFiles
from hqueue.net.tokens import DelegationToken, HeldTokens
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.steps import Wait, Work
from tests.support.looped import BlockingServers, LoopedServers
from tests.support.registries import Named, NamingMaster
from tests.support.scripted_server import Asked, ScriptedServer, answer, refusal
from tests.support.tls_servers import make_certificates, server_context
from tests.support.token_door import TOKEN, TokenDoor, identifier

Transport = BlockingServers | LoopedServers
Open = Callable[[Security], Transport]
Serve = Callable[..., ScriptedServer]
ALL = ("authentication", "integrity", "privacy")
OTHER = DelegationToken(TOKEN.identifier, bytes(20), "another-id")
MUCH = 500_000


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


@pytest.fixture(params=["blocking", "asyncio"])
def transport(request: pytest.FixtureRequest, stack: contextlib.ExitStack) -> Open:
    def begin(security: Security) -> Transport:
        if request.param == "blocking":
            return stack.enter_context(contextlib.closing(BlockingServers(Settings(), security)))
        looped = LoopedServers(Settings(), security)
        stack.callback(looped.end)
        return looped

    return begin


@pytest.fixture
def serve(stack: contextlib.ExitStack) -> Serve:
    def begin(door: TokenDoor, tls: ssl.SSLContext | None = None) -> ScriptedServer:
        return stack.enter_context(contextlib.closing(ScriptedServer(echo, tls, door)))

    return begin


def echo(asked: Asked) -> list[bytes]:
    return [answer(asked, pb.NameBytesPair(name="echo", value=asked.message), asked.cells)]


def holding(*tokens: DelegationToken, **given: Any) -> Security:
    held = HeldTokens()
    for token in tokens:
        held.use(token)
    return Security(**{"tokens": held, "protections": ALL, **given})


def ask(servers: Transport, server: ScriptedServer, message: bytes = b"put") -> bytes:
    said = servers.ask(Request(server.address, b"Mutate", message), "q", 10_000)
    return bytes(pb.NameBytesPair.FromString(said.message).value)


@pytest.mark.parametrize("in_tls", [False, True])
@pytest.mark.parametrize("qop", ["auth", "auth-int"])
def test_a_token_opens_the_door(
    transport: Open, serve: Serve, tls_folder: Path, qop: str, in_tls: bool
) -> None:
    door = TokenDoor(TOKEN)
    tls = TlsContexts(TlsFiles(str(tls_folder / "ca.pem"))) if in_tls else None
    server = serve(door, server_context(tls_folder) if in_tls else None)
    protections = ALL if qop == "auth" else ("privacy", "integrity")
    servers = transport(holding(TOKEN, protections=protections, tls=tls))
    for size in (0, 1, MUCH):
        assert ask(servers, server, b"m" * size) == b"m" * size
    assert [protected for _, protected in door.entered] == [qop]


def refused(servers: Transport, server: ScriptedServer, text: str) -> AuthenticationError:
    with pytest.raises(AuthenticationError, match=text) as caught:
        ask(servers, server)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    shown = f"{caught.value} {caught.value.facts}"
    assert TOKEN.password.hex() not in shown
    assert str(TOKEN.password)[2:-1] not in shown
    return caught.value


def test_a_token_that_is_not_accepted_is_refused_for_good(transport: Open, serve: Serve) -> None:
    error = refused(transport(holding(OTHER)), serve(TokenDoor(TOKEN)), "another cluster's")
    assert "Mismatched response" in str(error.facts["answer"])
    assert "app@EXAMPLE.COM" in str(error.facts["token"])


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("Token has expired", "it has expired: get another one"),
        ("Can't de-serialize tokenIdentifier", "HBase can't read it"),
        ("Unknown master key for token (id=7)", "doesn't know its key any more"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_the_token(
    transport: Open, serve: Serve, said: str, text: str
) -> None:
    name = "org.apache.hadoop.security.token.SecretManager$InvalidToken"
    server = serve(TokenDoor(TOKEN, refusal=(name, said)))
    error = refused(transport(holding(TOKEN)), server, text)
    assert error.facts["answer"] == f"SecretManager$InvalidToken: {said}"


def test_a_server_that_does_not_know_the_password_is_refused(transport: Open, serve: Serve) -> None:
    server = serve(TokenDoor(TOKEN, knows=False))
    refused(transport(holding(TOKEN)), server, "doesn't know the password")


def test_a_server_that_offers_privacy_alone_is_refused(transport: Open, serve: Serve) -> None:
    error = refused(
        transport(holding(TOKEN)),
        serve(TokenDoor(TOKEN, qop="auth-conf")),
        r"hbase\.rpc\.protection",
    )
    assert error.facts["offered"] == ["auth-conf"]


def test_a_server_that_asks_for_no_proof_is_refused_unless_that_is_allowed(
    transport: Open, serve: Serve
) -> None:
    server = serve(TokenDoor(asks=False))
    refused(transport(holding(TOKEN)), server, "hbase_fallback_to_simple")
    assert ask(transport(holding(TOKEN, falls_back=True)), server) == b"put"


def test_a_client_without_a_token_is_refused(transport: Open, serve: Serve) -> None:
    refused(transport(holding()), serve(TokenDoor()), r"Client\.use_token")


def test_a_newer_token_is_used_from_the_next_connection_on(transport: Open, serve: Serve) -> None:
    newer = dataclasses.replace(TOKEN, identifier=identifier(expires_ms=3_000_000))
    door, held = TokenDoor(TOKEN, newer), HeldTokens()
    server = serve(door)
    servers = transport(Security(tokens=held, protections=ALL))
    for token in (TOKEN, newer, TOKEN):
        held.use(token)
        server.break_connections()
        with contextlib.suppress(StoreUnavailableError):
            ask(servers, server)
        assert ask(servers, server) == b"put"
    used = [base64.b64decode(name) for name, _ in door.entered]
    assert used[0] == TOKEN.identifier
    assert {*used[1:]} == {newer.identifier}


def naming(found: str) -> Callable[[], Work[Any, str]]:
    def ask_for_it() -> Work[Any, str]:
        return (yield Wait(lambda: found, lambda: asyncio.sleep(0, found)))

    return ask_for_it


@pytest.mark.parametrize(("cluster_id", "text"), [("0f3e-id", ""), ("unknown", "of this cluster")])
def test_of_several_tokens_the_clusters_is_used(
    transport: Open, serve: Serve, cluster_id: str, text: str
) -> None:
    server = serve(TokenDoor(TOKEN))
    servers = transport(holding(OTHER, TOKEN, cluster_id=naming(cluster_id)))
    if text:
        refused(servers, server, text)
    else:
        assert ask(servers, server) == b"put"


class Ticketless:
    """A login without a ticket."""

    def begin(self, server: str, **given: object) -> Wait:
        def fail() -> None:
            raise RefusedError("Kerberos refused: there is no ticket: run kinit")

        async def fail_in_loop() -> None:
            fail()

        return Wait(fail, fail_in_loop)


def test_without_a_ticket_a_client_of_kerberos_uses_a_token(
    transport: Open, serve: Serve, tmp_path: Path
) -> None:
    server = serve(TokenDoor(TOKEN))
    login: Any = {"login": Ticketless()}
    refused(transport(holding(**login)), server, "run kinit")
    refused(transport(holding(**login, tokens=None)), server, "run kinit")
    assert ask(transport(holding(TOKEN, **login)), server) == b"put"
    (tmp_path / "tokens").write_bytes(TOKEN.to_bytes())
    held = HeldTokens(str(tmp_path / "tokens"))
    assert ask(transport(holding(**login, tokens=held)), server) == b"put"


def test_settings_choose_the_file_and_the_environment_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, named = tmp_path / "given", tmp_path / "named"
    given.write_bytes(TOKEN.to_bytes())
    named.write_bytes(OTHER.to_bytes())
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(named))
    for way in ("token", "kerberos"):
        tokens = Security.of(Settings(hbase_authentication=way)).tokens
        assert tokens is not None
        assert tokens.all() == [OTHER]
        tokens = Security.of(Settings(hbase_authentication=way, hbase_token_file=str(given))).tokens
        assert tokens is not None
        assert tokens.all() == [TOKEN]
    assert Security.of(Settings()).tokens is None
    keytab = Settings(hbase_authentication="kerberos", kerberos_keytab="keys")
    assert Security.of(keytab).tokens is None


class Gives:
    """A server that names itself and gives tokens, or an error."""

    def __init__(self, stack: contextlib.ExitStack, *errors: str) -> None:
        self.asked: list[Any] = []
        self._errors = [*errors]
        self.server = stack.enter_context(contextlib.closing(ScriptedServer(self._say)))
        self._named = NamingMaster(Named("0f3e-id", self.server.address, self.server.address))

    def _say(self, asked: Asked) -> list[bytes]:
        if asked.method != "ExecService":
            return self._named(asked)
        self.asked.append(pb.CoprocessorServiceRequest.FromString(asked.message))
        if self._errors:
            return [refusal(asked, self._errors.pop(0), final=not self._errors)]
        token = pb.Token(identifier=TOKEN.identifier, password=TOKEN.password, service=b"0f3e-id")
        given = pb.GetAuthenticationTokenResponse(token=token).SerializeToString()
        value = pb.NameBytesPair(name="t", value=given)
        return [
            answer(asked, pb.CoprocessorServiceResponse(region=self.asked[0].region, value=value))
        ]


Get = Callable[[Gives, Security], DelegationToken]


@pytest.fixture(params=["blocking", "asyncio"])
def get(request: pytest.FixtureRequest, stack: contextlib.ExitStack) -> Get:
    """Gets a token, over connections in clear: how they are opened is tested above."""

    def got(gives: Gives, security: Security) -> DelegationToken:
        settings = Settings(hbase_masters=(gives.server.address,), operation_timeout_ms=2_000)
        servers = stack.enter_context(contextlib.closing(Servers(settings)))
        async_servers = AsyncServers(settings)
        registry = MastersRegistry(settings, settings.hbase_masters)
        tokens = DelegationTokens(servers, async_servers, registry, security, SYSTEM_CLOCK)
        if request.param == "blocking":
            return tokens.get()

        async def run() -> DelegationToken:
            try:
                return await tokens.get.in_loop()
            finally:
                async_servers.close()

        return asyncio.run(run())

    return got


BY_KERBEROS: Any = {"login": object()}


def test_a_token_is_got_from_the_server_of_meta(get: Get, stack: contextlib.ExitStack) -> None:
    gives = Gives(stack, "org.apache.hadoop.hbase.NotServingRegionException")
    assert get(gives, Security(**BY_KERBEROS)) == TOKEN
    (_, asked) = gives.asked
    assert asked.region.value == b"hbase:meta,,1"
    assert asked.call.service_name == "AuthenticationService"
    assert asked.call.method_name == "GetAuthenticationToken"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("org.apache.hadoop.hbase.exceptions.UnknownProtocolException", "TokenProvider"),
        ("org.apache.hadoop.hbase.security.AccessDeniedException", "refused the request"),
    ],
)
def test_a_server_that_gives_none_is_an_error_that_says_why(
    get: Get, stack: contextlib.ExitStack, name: str, text: str
) -> None:
    with pytest.raises(RequestRefusedError, match=text):
        get(Gives(stack, name), Security(**BY_KERBEROS))


def test_a_client_that_proved_itself_by_a_token_gives_that_one(
    get: Get, stack: contextlib.ExitStack
) -> None:
    denied = "org.apache.hadoop.hbase.security.AccessDeniedException"
    assert get(Gives(stack, denied), holding(TOKEN, **BY_KERBEROS)) == TOKEN
    gives = Gives(stack)
    assert get(gives, holding(TOKEN)) == TOKEN
    assert not gives.asked
    with pytest.raises(AuthenticationError, match="no delegation token"):
        get(gives, holding())
    with pytest.raises(SettingsError, match="hbase_authentication='kerberos'"):
        get(gives, Security())


def test_a_server_that_stays_away_may_come_back(get: Get, stack: contextlib.ExitStack) -> None:
    gives = Gives(stack)
    gives.server.close()
    with pytest.raises(StoreUnavailableError) as caught:
        get(gives, Security(**BY_KERBEROS))
    assert caught.value.outcome is Outcome.NOT_APPLIED


@pytest.mark.parametrize(
    ("given", "text"),
    [({"gateways": "nowhere.example:1/2"}, "native way"), ({"hbase": "native"}, "used only with")],
)
def test_a_client_that_proves_nothing_takes_no_token(given: Any, text: str) -> None:
    with hqueue.connect(**given) as client:
        for face in (client, hqueue.aio.Client(client)):
            with pytest.raises(SettingsError, match=text):
                face.use_token(TOKEN)
        with pytest.raises(SettingsError):
            client.delegation_token()
        with pytest.raises(SettingsError):
            asyncio.run(hqueue.aio.Client(client).delegation_token())


def test_a_client_keeps_the_token_that_it_was_given() -> None:
    with hqueue.connect(hbase_authentication="token") as client:
        client.use_token(TOKEN)
        assert client.delegation_token() == TOKEN
        assert asyncio.run(hqueue.aio.Client(client).delegation_token()) == TOKEN
