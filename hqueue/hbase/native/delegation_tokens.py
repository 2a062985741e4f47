"""Gets delegation tokens, which HBase gives to clients that prove themselves by Kerberos."""

from __future__ import annotations

from hqueue.errors import (
    AuthenticationError,
    Outcome,
    RequestRefusedError,
    SettingsError,
    StoreUnavailableError,
)
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.exchanges import Ask, Asking, Request
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import META_REGION, META_TABLE
from hqueue.hbase.native.registry import Registry
from hqueue.hbase.native.security import Security
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.translation import reads_answer
from hqueue.hbase.native.wire import Answer, RemoteError
from hqueue.net.refusals import RefusedError
from hqueue.net.tokens import DelegationToken
from hqueue.runtime.clock import Clock, Deadline
from hqueue.runtime.stepwise import OnPorts, stepwise

__all__ = ["DelegationTokens"]

_REGION = pb.RegionSpecifier(type=pb.RegionSpecifier.REGION_NAME, value=META_REGION)
_GET = pb.CoprocessorServiceRequest(
    region=_REGION,
    call=pb.CoprocessorServiceCall(
        row=b"",
        service_name="AuthenticationService",
        method_name="GetAuthenticationToken",
        request=b"",
    ),
)


class DelegationTokens(OnPorts):
    """The store's `TokenPort`. Thread-safe.

    Args:
        servers, async_servers: region servers.
        registry: says which of them has ``hbase:meta``.
        security: how this client proves itself.
        clock: where time comes from.
    """

    def __init__(
        self,
        servers: Servers,
        async_servers: AsyncServers,
        registry: Registry,
        security: Security,
        clock: Clock,
    ) -> None:
        super().__init__(servers, async_servers, clock)
        self._servers = servers
        self._registry = registry
        self._security = security

    def use(self, token: DelegationToken) -> None:
        """Like `TokenPort.use`."""
        if self._security.tokens is None:
            raise SettingsError(
                "a delegation token is used only with hbase_authentication='token', or with "
                "'kerberos' by a client without a keytab"
            )
        self._security.tokens.use(token)

    @stepwise
    def get(self) -> Asking[DelegationToken]:
        """Like `TokenPort.get`."""
        if self._security.login is None:
            return (yield from self._own())
        deadline = Deadline(self._clock, self._servers.settings.operation_timeout_ms)
        try:
            return (yield from deadline.bound(deadline.insist(self._ask)))
        except RequestRefusedError as exc:
            kind = exc.__cause__.kind if isinstance(exc.__cause__, RemoteError) else ""
            if kind == "AccessDeniedException" and self._security.tokens is not None:
                # Without a ticket, this client proved itself by a token.
                return (yield from self._own())
            if kind == "UnknownProtocolException":
                raise RequestRefusedError(
                    "HBase gives no delegation tokens: add "
                    "org.apache.hadoop.hbase.security.token.TokenProvider to the server's "
                    "hbase.coprocessor.region.classes",
                    outcome=Outcome.NOT_APPLIED,
                ) from exc
            raise

    def _own(self) -> Asking[DelegationToken]:
        """Return the token by which this client proves itself: HBase gives no other for it."""
        if self._security.tokens is None:
            raise SettingsError("a delegation token needs hbase_authentication='kerberos'")
        try:
            return (yield from self._security.token())
        except RefusedError as exc:
            raise AuthenticationError(exc.text, outcome=Outcome.NOT_APPLIED, **exc.facts) from exc

    @reads_answer
    def _ask(self) -> Asking[DelegationToken]:
        self._servers.check_open()
        address = yield from self._registry.meta()
        try:
            request = Request(address, b"ExecService", _GET.SerializeToString())
            answer: Answer = yield Ask(request, META_TABLE)
        except StoreUnavailableError:
            self._registry.doubt_meta(address)
            raise
        value = pb.CoprocessorServiceResponse.FromString(answer.message).value.value
        token = pb.GetAuthenticationTokenResponse.FromString(value).token
        if not token.identifier or not token.password:
            raise ValueError("the answer has no token")
        return DelegationToken(token.identifier, token.password, token.service.decode())
