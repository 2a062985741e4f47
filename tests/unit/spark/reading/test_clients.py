"""What tasks have of a driver's connection: no secret but a token; and which token."""

from __future__ import annotations

import base64
import logging
import pickle
from collections.abc import Iterator

import pytest
from pyspark.cloudpickle import dumps

import hqueue
from hqueue import InvalidInputError, Outcome, SettingsError, StoreUnavailableError
from hqueue.net.tokens import DelegationToken
from pyspark_hqueue.reading import clients
from pyspark_hqueue.reading.clients import TokenSupply, client_of, task_token
from pyspark_hqueue.reading.plan import Task
from pyspark_hqueue.reading.py4j_logs import no_py4j_errors, no_py4j_logs
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.writing.sink import QueueWriter, Writing
from pyspark_hqueue.writing.write_options import WriteOptions
from tests.support.doubles import SteppedClock
from tests.support.spark_reading import options_of
from tests.support.token_door import TOKEN, identifier

BY_KERBEROS = {
    "hqueue.zookeeper": "nowhere.example:2181",
    "hqueue.hbase_authentication": "kerberos",
    "hqueue.kerberos_keytab": "/etc/keys/app.keytab",
    "hqueue.kerberos_principal": "app@EXAMPLE.COM",
    "hqueue.hbase_tls": "true",
    "hqueue.tls_ca": "/etc/ca.pem",
}


def shows(data: bytes, secret: bytes) -> bool:
    """Whether data has a secret in it, however it is written."""
    return any(
        each in data for each in (secret, base64.b64encode(secret)[:-4], secret.hex().encode())
    )


class Kerberized:
    """A client that gets tokens, one after the other, and then the last one."""

    def __init__(self, *tokens: DelegationToken | Exception) -> None:
        self._tokens = [*tokens]

    def delegation_token(self) -> DelegationToken:
        found = self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def kerberized(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    clients._supply.cache_clear()
    monkeypatch.setattr(clients, "client_of", lambda settings: Kerberized(TOKEN))
    yield
    clients._supply.cache_clear()


def task_settings(options: ReadOptions) -> hqueue.Settings:
    found: hqueue.Settings = pickle.loads(pickle.dumps(options)).settings
    return found


def test_options_leave_the_driver_without_what_it_proves_itself_by() -> None:
    options = options_of(**BY_KERBEROS)
    for pickled in (pickle.dumps(options), dumps(lambda: options)):
        assert b"app.keytab" not in pickled
    settings = task_settings(options)
    assert settings == task_settings(pickle.loads(pickle.dumps(options)))
    assert (settings.hbase_authentication, settings.kerberos_principal) == ("token", None)
    assert (settings.hbase_tls, settings.tls_ca) == (True, "/etc/ca.pem")
    assert options.settings.kerberos_keytab == "/etc/keys/app.keytab"


def test_an_executor_with_a_keytab_of_its_own_uses_the_token_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HQUEUE_ZOOKEEPER_AUTH", "digest:app:hush-hush")
    options = options_of(**BY_KERBEROS)
    pickled = pickle.dumps(options)
    monkeypatch.setenv("HQUEUE_HBASE_AUTHENTICATION", "kerberos")
    monkeypatch.setenv("HQUEUE_KERBEROS_KEYTAB", "/etc/executor.keytab")
    settings = pickle.loads(pickled).settings
    assert (settings.hbase_authentication, settings.kerberos_keytab) == ("token", None)
    assert settings.zookeeper_auth == options.settings.zookeeper_auth


def test_a_task_where_a_secret_is_missing_says_so_when_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HQUEUE_ZOOKEEPER_AUTH", "digest:app:hush-hush")
    pickled = pickle.dumps(options_of())
    assert pickle.loads(pickled).task_settings.zookeeper_auth
    monkeypatch.delenv("HQUEUE_ZOOKEEPER_AUTH")
    options = pickle.loads(pickled)  # An error here would be one of Spark's, of many lines.
    with pytest.raises(SettingsError, match="set this one there, too") as caught:
        _ = options.task_settings
    assert caught.value.settings == ["zookeeper_auth"]


def test_without_tokens_tasks_prove_themselves_as_the_driver_does() -> None:
    options = options_of(**BY_KERBEROS, delegationTokens="false")
    assert task_settings(options) == options.settings
    assert task_token(options) is None
    assert task_token(options_of()) is None
    assert task_settings(options_of()) == options_of().settings


def test_tasks_do_not_prove_themselves_to_zookeeper_by_kerberos() -> None:
    options = options_of(**BY_KERBEROS, **{"hqueue.zookeeper_authentication": "kerberos"})
    settings = task_settings(options)
    assert (settings.zookeeper_authentication, settings.notify_workers) == ("none", False)
    options = options_of(**{"hqueue.zookeeper_authentication": "kerberos"})
    assert task_settings(options) == options.settings


def test_a_token_of_a_file_is_handed_over_and_the_file_is_not() -> None:
    given = {"hqueue.hbase_authentication": "token", "hqueue.hbase_token_file": "/run/tokens"}
    settings = task_settings(options_of(**given))
    assert (settings.hbase_authentication, settings.hbase_token_file) == ("token", None)


@pytest.mark.usefixtures("kerberized")
def test_a_token_goes_with_tasks_and_writers_and_is_not_shown() -> None:
    token = task_token(options_of(**BY_KERBEROS))
    assert token == TOKEN.to_bytes()
    task = Task(()).proven_by(token)
    assert pickle.loads(pickle.dumps(task)).token == token
    options = WriteOptions.of({"queue": "events", **BY_KERBEROS}, "batch")
    writer = QueueWriter(options, 1, Writing("job", hqueue.MessageID(0)))
    for shown in (f"{task} {task!r} {[task]}", f"{writer} {writer!r} {options!r}"):
        assert not shows(shown.encode(), TOKEN.password)
        assert not shows(shown.encode("unicode_escape"), TOKEN.password)
    assert b"app.keytab" not in dumps(writer)
    assert pickle.loads(dumps(writer))._token == token


def test_tasks_in_one_name_share_a_client_which_uses_the_newest_token() -> None:
    settings = task_settings(options_of(**BY_KERBEROS))
    newer = DelegationToken(identifier(expires_ms=9_000_000), b"p", TOKEN.service)
    others = DelegationToken(identifier("other@R"), b"p", TOKEN.service)
    first = client_of(settings, TOKEN.to_bytes())
    assert client_of(settings, newer.to_bytes()) is first
    assert client_of(settings, TOKEN.to_bytes()) is first
    assert first.delegation_token() == newer
    assert client_of(settings, others.to_bytes()) is not first
    with pytest.raises(InvalidInputError, match="not the bytes of a delegation token"):
        client_of(settings, b"?")
    clients._client.cache_clear()


DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


def of_day(day: float, days: int = 7) -> DelegationToken:
    issued = NOW_MS + int(day * DAY_MS)
    return DelegationToken(identifier("a@R", issued, issued + days * DAY_MS), b"%f" % day, "c")


def test_another_token_is_got_when_three_quarters_of_its_life_are_over() -> None:
    clock = SteppedClock(NOW_MS)
    supply = TokenSupply(Kerberized(of_day(0), of_day(5.25)), clock)  # type: ignore[arg-type]
    first = supply.current()
    assert first == of_day(0).to_bytes()
    clock.now_ms += int(5.2 * DAY_MS)
    assert supply.current() is first
    clock.now_ms += int(0.05 * DAY_MS)
    assert supply.current() == of_day(5.25).to_bytes()


def test_a_token_of_a_file_is_looked_for_again_as_its_end_comes_nearer() -> None:
    clock = SteppedClock(NOW_MS)
    old = of_day(-6)
    supply = TokenSupply(Kerberized(old, old, of_day(0.8)), clock)  # type: ignore[arg-type]
    assert supply.current() == old.to_bytes()
    clock.now_ms += int(0.76 * DAY_MS)
    assert supply.current() == old.to_bytes()
    clock.now_ms += int(0.2 * DAY_MS)
    assert supply.current() == of_day(0.8).to_bytes()


def test_while_hbase_is_away_tasks_get_the_earlier_token_as_long_as_it_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SteppedClock(NOW_MS)
    away = StoreUnavailableError("away", outcome=Outcome.NOT_APPLIED)
    given = Kerberized(of_day(0), away, away, of_day(6), away)
    supply = TokenSupply(given, clock)  # type: ignore[arg-type]
    first = supply.current()
    clock.now_ms += 6 * DAY_MS
    with caplog.at_level(logging.INFO):
        assert supply.current() is first
        assert supply.current() is first, "it is asked again after a minute"
        clock.now_ms += 60_000
        assert supply.current() is first
        clock.now_ms += 60_000
        assert supply.current() == of_day(6).to_bytes()
    assert "can't get another delegation token" in caplog.text
    assert not shows(caplog.text.encode(), of_day(6).password)
    clock.now_ms += 8 * DAY_MS
    with pytest.raises(StoreUnavailableError):
        supply.current()


def test_py4j_logs_nothing_of_what_is_handed_over(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("py4j.clientserver")
    with caplog.at_level(logging.DEBUG, "py4j.clientserver"):
        logger.debug("before")
        with no_py4j_logs():
            logger.debug("a secret")
            logger.error("an error")
        logger.debug("after")
    assert [record.message for record in caplog.records] == ["before", "an error", "after"]


def test_py4j_logs_no_traceback_of_an_error_that_it_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def log(module: str, name: str | None, error: BaseException) -> None:
        here = f"/py4j/{module}.py", 1, "while sending command", (), (type(error), error, None)
        logger = logging.getLogger(name)
        logger.handle(logger.makeRecord(logger.name, logging.ERROR, *here))

    with no_py4j_errors():
        log("java_gateway", None, KeyboardInterrupt())
        log("clientserver", "py4j.clientserver", OSError())
        log("another", None, ValueError())
    log("java_gateway", None, KeyboardInterrupt())
    kinds = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert kinds == [ValueError, KeyboardInterrupt]
