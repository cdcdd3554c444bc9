"""Where alerts go, over the wire: a signed webhook and Apprise, against the sandbox's sink. Nothing that is secret
about a destination is in a log, an error or a table."""

import base64
import logging
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from sqlalchemy import select
from standardwebhooks import Webhook, WebhookVerificationError

from tests.fakes import FakeClock
from tidings.announce.execution.alerts import AnnounceAlert
from tidings.collect.alerts.kinds import CollectAlert
from tidings.core.alerts.conditions import alert_conditions
from tidings.core.alerts.events import Alert, AlertEvent, DeliveryError, DestinationError, EventType
from tidings.core.alerts.kinds import AlertKind, AlertLevel, Language
from tidings.core.alerts.messengers import AppriseDestination, split_urls
from tidings.core.alerts.outbox import alert_outbox
from tidings.core.alerts.service import Alerts
from tidings.core.alerts.webhook import WebhookDestination, new_webhook_secret
from tidings.core.alerts.wording import write_body, write_title
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database
from tidings.core.logs.logger import LogFormat, configure_logging
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.sandbox.webhook_sink import SandboxSink
from tidings.sandbox.wire.faults import Fault, FaultKind

EVENT = AlertEvent(
    id="evt-1-abc",
    type=EventType.FIRED,
    kind="many_failures",
    level=AlertLevel.P1,
    title="Many URLs failed",
    subject="blog at one.example",
    reason='3 of 20 failed: "é 中"',
    action="Check the key.",
    count=3,
    since=datetime(2026, 11, 15, 12, tzinfo=UTC),
    occurred_at=datetime(2026, 11, 15, 12, 30, tzinfo=UTC),
)


@pytest.fixture
async def sink() -> AsyncIterator[SandboxSink]:
    async with SandboxSink() as running:
        yield running


@pytest.fixture
def secret() -> Secret:
    return new_webhook_secret()


@pytest.fixture
def webhook(sink: SandboxSink, secret: Secret, client: GuardedClient) -> WebhookDestination:
    return WebhookDestination(sink.address, secret=secret, client=client, clock=SystemClock())


async def test_a_webhook_is_signed_as_standard_webhooks_say(
    webhook: WebhookDestination, sink: SandboxSink, secret: Secret
) -> None:
    """A24: the receiver's own library accepts it, over exactly what came, and refuses it with one character changed."""
    await webhook.send(EVENT)
    [taken] = sink.taken
    body, verifier = str(taken.fields["body"]), Webhook(secret.reveal())
    assert verifier.verify(body, dict(taken.headers)) == {
        "type": "alert.fired",
        "timestamp": "2026-11-15T12:30:00.000Z",
        "data": {
            "kind": "many_failures",
            "level": "P1",
            "subject": "blog at one.example",
            "title": "Many URLs failed: blog at one.example",
            "reason": '3 of 20 failed: "é 中"',
            "action": "Check the key.",
            "count": 3,
            "since": "2026-11-15T12:00:00.000Z",
        },
    }
    assert (taken.headers["webhook-id"], taken.headers["Content-Type"]) == (EVENT.id, "application/json")
    with pytest.raises(WebhookVerificationError):
        verifier.verify(body.replace("20 failed", "21 failed"), dict(taken.headers))


async def test_a_second_sending_has_the_same_id_and_the_time_of_its_own(
    sink: SandboxSink, secret: Secret, client: GuardedClient, clock: FakeClock
) -> None:
    """Alerts: receivers tell repetitions by the id, and refuse a timestamp that is some minutes old."""
    webhook = WebhookDestination(sink.address, secret=secret, client=client, clock=clock)
    await webhook.send(EVENT)
    clock.advance(timedelta(hours=1))
    await webhook.send(replace(EVENT, type=EventType.RESOLVED))
    first, second = sink.taken
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert int(second.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"]) == 3600
    assert '"type": "alert.resolved"' in str(second.fields["body"])


@pytest.mark.parametrize("status", [200, 201, 202, 299])
async def test_every_2xx_is_a_delivery_whatever_its_body(
    webhook: WebhookDestination, sink: SandboxSink, status: int
) -> None:
    """Alerts: even one with megabytes of answer, which nobody reads."""
    sink.misbehave(Fault(status=status, body="x" * 3_000_000))
    await webhook.send(EVENT)
    assert len(sink.taken) == 1


@pytest.mark.parametrize(
    ("fault", "retry", "retry_after"),
    [
        *((Fault(status=status), True, None) for status in (302, 400, 401, 404, 408, 425, 429, 500, 503)),
        (Fault(status=410), False, None),
        (Fault(status=429, headers={"Retry-After": "600"}), True, timedelta(minutes=10)),
        (Fault(status=503, headers={"Retry-After": "600"}), True, timedelta(minutes=10)),
        (Fault(status=500, headers={"Retry-After": "600"}), True, None),
        (Fault(FaultKind.RESET), True, None),
    ],
)
async def test_what_a_receiver_answers_decides_about_trying_again(
    webhook: WebhookDestination, sink: SandboxSink, fault: Fault, retry: bool, retry_after: timedelta | None
) -> None:
    """Alerts: people mend their receivers, so only 410 is final."""
    sink.misbehave(fault)
    with pytest.raises(DeliveryError) as caught:
        await webhook.send(EVENT)
    assert (caught.value.retry, caught.value.retry_after) == (retry, retry_after)
    assert len(sink.requests) == 1


async def test_a_webhook_goes_through_the_gate_for_addresses(sink: SandboxSink, secret: Secret) -> None:
    """Alerts: a private address is not asked unless the operator allows it; the rule is shown, the URL is not."""
    async with GuardedClient(user_agent="tests") as guarded:
        webhook = WebhookDestination(f"{sink.origin}/path-token", secret=secret, client=guarded, clock=SystemClock())
        with pytest.raises(DeliveryError, match="TIDINGS_ALLOW_NETWORKS") as caught:
            await webhook.send(EVENT)
    assert "path-token" not in str(caught.value)
    assert len(sink.requests) == 0


@pytest.mark.parametrize(
    "text",
    ["", "canary", "whsec_", "whsec_canary", "whsec_" + base64.b64encode(23 * b"c").decode(), "whsec_" + 40 * "é"],
)
def test_a_weak_or_malformed_secret_is_refused(client: GuardedClient, text: str) -> None:
    """Alerts: with the rule, and without the secret."""
    with pytest.raises(DestinationError, match="whsec_ and the base64 of 24 to 64") as caught:
        WebhookDestination("https://hooks.example/", secret=Secret(text), client=client, clock=SystemClock())
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("url", ["canary", "ftp://canary/", "https://user:canary@hooks.example/", "http://can ary/"])
def test_a_webhook_url_that_cannot_be_used_is_refused(client: GuardedClient, secret: Secret, url: str) -> None:
    """Alerts: when it is set up, and without repeating it."""
    with pytest.raises(DestinationError) as caught:
        WebhookDestination(url, secret=secret, client=client, clock=SystemClock())
    assert "canary" not in str(caught.value)


def name_apprise_url(sink: SandboxSink, *, credentials: str = "") -> Secret:
    return Secret(f"json://{credentials}{sink.host}/")


@pytest.mark.parametrize(
    ("event_type", "title", "level"),
    [
        (EventType.FIRED, "Many URLs failed: blog at one.example", "failure"),
        (EventType.RESOLVED, "Resolved: Many URLs failed: blog at one.example", "success"),
    ],
)
async def test_apprise_delivers_to_a_real_receiver(
    sink: SandboxSink, event_type: EventType, title: str, level: str
) -> None:
    """A24: title, reason, count and action, with the password it was given."""
    destination = AppriseDestination(name_apprise_url(sink, credentials="user:pass%2Fword@"), number=2)
    event = replace(EVENT, type=event_type)
    await destination.send(event)
    [taken] = sink.taken
    document = taken.fields["document"]
    assert isinstance(document, dict)
    assert (document["title"], document["message"], document["type"]) == (title, write_body(event), level)
    assert base64.b64decode(taken.headers["Authorization"].removeprefix("Basic ")) == b"user:pass/word"
    assert destination.name == "apprise:2"


FOREIGN_WORDS = (
    "@everyone a@everyone <!channel> <@U1> [your bank](https://evil.example) ||hidden|| ![x](http://t.example/1.png)\n"
    "[bank]: https://evil.example"
)


async def test_foreign_words_are_no_markup_in_a_messenger(sink: SandboxSink) -> None:
    """Alerts: Mattermost, Discord and Slack read text as Markdown; nobody is called, and no link shows another text."""
    sink.misbehave(Fault(FaultKind.STATUS, status=200))
    destination = AppriseDestination(Secret(f"mmost://{sink.host}/3ccdd113474722377935511fc85d3dd4"), number=1)
    event = replace(EVENT, subject="@here at one.example", reason=FOREIGN_WORDS, action="Ask admin@one.example.")
    with suppress(DeliveryError):
        await destination.send(event)
    document = sink.requests[-1].fields["document"]
    assert isinstance(document, dict)
    text = document["text"]
    assert [each for each in ("@everyone", "@here", "<!", "<@", "](", "]:", "||") if each in text] == []
    assert "admin@one.example" in text
    assert text.replace("\u200b", "").count(FOREIGN_WORDS) == 1


@pytest.mark.parametrize("fault", [Fault(status=500), Fault(status=410), Fault(FaultKind.RESET), Fault(FaultKind.HANG)])
async def test_what_apprise_cannot_deliver_is_to_be_retried(sink: SandboxSink, fault: Fault) -> None:
    """Alerts: it does not say why, so everything is; a service that hangs is not waited for."""
    sink.misbehave(fault)
    limit = timedelta(seconds=0.3) if fault.kind is FaultKind.HANG else timedelta(seconds=30)
    destination = AppriseDestination(name_apprise_url(sink), number=1, time_limit=limit)
    with pytest.raises(DeliveryError, match="Apprise") as caught:
        await destination.send(EVENT)
    assert caught.value.retry


@pytest.mark.parametrize("url", ["canary", "canary://host/", "https://", "slack://canary", "mailto://user:canary@"])
def test_an_apprise_url_that_is_not_understood_is_refused(url: str) -> None:
    """Alerts: when it is set up, by its number, and without repeating it."""
    with pytest.raises(DestinationError, match="alert URL number 3") as caught:
        AppriseDestination(Secret(url), number=3).check()
    assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("json://a/", ["json://a/"]),
        ("json://a/?x=1,2, tgram://b/c d; mailto://e\n", ["json://a/?x=1,2", "tgram://b/c d", "mailto://e"]),
        (" ,", []),
    ],
)
def test_several_apprise_urls_stand_in_one_setting(text: str, urls: list[str]) -> None:
    """Alerts: a comma inside a URL does not end it."""
    assert [each.reveal() for each in split_urls(Secret(text))] == urls


@pytest.mark.thorough
def test_apprise_is_not_loaded_before_it_is_needed() -> None:
    """Alerts: plain commands stay light."""
    check = "import sys, tidings.core.alerts; sys.exit('apprise' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


class RawLog(logging.Handler):
    """Keeps every record of every library, before anything is redacted."""

    def __init__(self) -> None:
        super().__init__(level=1)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = "".join(traceback.format_exception(record.exc_info[1])) if record.exc_info else ""
        self.lines.append(f"{record.name} {record.msg} {record.args} {error}")


@pytest.fixture
def raw_log() -> Iterator[RawLog]:
    """Logging as with the level `debug`, heard without the redactor."""
    before = {logger: logger.level for logger in map(logging.getLogger, (None, "tidings", "apprise", "urllib3"))}
    handlers = logging.getLogger().handlers[:]
    configure_logging(format=LogFormat.JSON, level="debug", redactor=Redactor(), quiet=True)
    log = RawLog()
    logging.getLogger().addHandler(log)
    yield log
    logging.captureWarnings(False)
    logging.getLogger().handlers[:] = handlers
    for logger, level in before.items():
        logger.setLevel(level)


def spell(secret: str) -> set[str]:
    encoded = secret.encode()
    forms = {secret, quote(secret, safe=""), encoded.hex(), base64.b64encode(encoded).decode().rstrip("=")}
    # Inside a longer base64 text, at the other two alignments.
    return forms | {base64.b64encode(bytes(before) + encoded).decode()[4:-4] for before in (1, 2)}


async def dump_tables(database: Database) -> str:
    async with database.read() as connection:
        rows = [(await connection.execute(select(table))).all() for table in (alert_conditions, alert_outbox)]
    return str(rows)


async def test_no_log_no_error_and_no_table_holds_a_destinations_secret(
    database: Database, clock: FakeClock, client: GuardedClient, sink: SandboxSink, secret: Secret, raw_log: RawLog
) -> None:
    """Alerts: password, path and signing secret, in clear, URL-encoded and base64, whatever goes wrong on the way."""
    password, token = "Kanarie/9+vogel~x", "path-token-8471"
    apprise_url = Secret(f"json://user:{quote(password, safe='')}@{sink.host}/{token}")
    webhook = WebhookDestination(f"{sink.origin}/{token}", secret=secret, client=client, clock=clock)
    alerts = Alerts(
        database,
        clock=clock,
        destinations=[webhook, AppriseDestination(apprise_url, number=1)],
        retry_scale=0,
    )
    async with database.write() as connection:
        await alerts.raise_alert(connection, Alert(AnnounceAlert.NO_URLS, "shop", reason="none", action="Look."))
    shown = ""
    for fault in (Fault(status=500), Fault(FaultKind.RESET), Fault(FaultKind.RESET_AFTER_ACCEPTING)):
        sink.misbehave(fault)
        assert await alerts.deliver() == 0
        shown += await dump_tables(database)
        sink.recover()
    await sink.close()
    assert await alerts.deliver() == 0
    shown += await dump_tables(database)
    await sink.start()
    assert await alerts.deliver() == 2
    shown += await dump_tables(database) + repr((webhook, alerts, vars(webhook))) + "\n".join(raw_log.lines)
    assert shown.count("alert.not_delivered") == 8
    hidden = {form for text in (password, token, secret.reveal()) for form in spell(text)}
    hidden |= spell(secret.reveal().removeprefix("whsec_")) | spell(apprise_url.reveal())
    assert {form for form in hidden if form in shown} == set()


async def test_the_libraries_under_apprise_would_tell_its_address_if_they_were_heard(
    sink: SandboxSink, raw_log: RawLog
) -> None:
    """Alerts: the silence above is kept by us, and what listens there can hear."""
    destination = AppriseDestination(Secret(f"json://{sink.host}/path-token-8471"), number=1)
    await destination.send(EVENT)
    assert not any("path-token-8471" in line for line in raw_log.lines)
    for name in ("apprise", "urllib3"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    await destination.send(EVENT)
    assert any("path-token-8471" in line for line in raw_log.lines)


@pytest.mark.parametrize("kind", [*AnnounceAlert, *CollectAlert])
def test_every_kind_has_a_title_in_both_languages(kind: AlertKind) -> None:
    """A24, A40, C24: a title of its own, not its name."""
    english, chinese = kind.titles[Language.ENGLISH], kind.titles[Language.CHINESE]
    assert english.isascii()
    assert english != kind.replace("_", " ").capitalize()
    assert not chinese.isascii()


def test_the_three_alerts_of_collect_have_the_levels_that_were_asked_for() -> None:
    """C24: P0 no active cookie, P1 the success rate, P2 many pending; the title says so too."""
    for kind in (CollectAlert.NO_ACTIVE_COOKIE, CollectAlert.SUCCESS_RATE, CollectAlert.MANY_PENDING):
        assert all(title.startswith(kind.level) for title in kind.titles.values())
    levels = [CollectAlert.NO_ACTIVE_COOKIE.level, CollectAlert.SUCCESS_RATE.level, CollectAlert.MANY_PENDING.level]
    assert levels == [AlertLevel.P0, AlertLevel.P1, AlertLevel.P2]


def test_the_text_is_labelled_in_the_reader_s_language() -> None:
    """A24: reason, action and count; what is over needs no action."""
    chinese = replace(EVENT, title="大量网址推送失败", language=Language.CHINESE)
    assert write_body(EVENT).splitlines()[:3] == [
        'Reason: 3 of 20 failed: "é 中"',
        "Action: Check the key.",
        "Count: 3",
    ]
    assert write_body(chinese).splitlines()[:3] == [
        '原因：3 of 20 failed: "é 中"',
        "建议：Check the key.",
        "数量：3",
    ]
    over = replace(chinese, type=EventType.RESOLVED, count=None)
    assert write_title(over) == "已恢复：大量网址推送失败：blog at one.example"
    assert [line.partition("：")[0] for line in write_body(over).splitlines()] == ["原因", "开始", "恢复"]
