"""Logs: every path through the redactor, one chain for all loggers, lines that cannot be broken or forged."""

import asyncio
import base64
import contextvars
import io
import json
import logging
import os
import re
import shutil
import stat
import subprocess
import sys
import urllib.parse
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import structlog
from structlog.stdlib import BoundLogger

from tests.processes import FORKED
from tidings.core.logs.log_file import FILE_SIZE
from tidings.core.logs.logger import (
    LogFormat,
    bind_request_id,
    configure_logging,
    current_request_id,
    get_logger,
    request_id_scope,
)
from tidings.core.secrets.patterns import MARKER
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

LINES_EACH = 35
CANARY = "Zk3/canary+9Qw\"7' Lm2é8R"
FORMS = {
    "clear": CANARY,
    "url-encoded": urllib.parse.quote(CANARY, safe=""),
    "form-encoded": urllib.parse.quote_plus(CANARY).replace("%2F", "%2f"),
    "base64": base64.b64encode(CANARY.encode()).decode(),
    "base64 inside": base64.urlsafe_b64encode(b"u:" + CANARY.encode() + b"!").decode(),
    "hex": CANARY.encode().hex(),
}
HOSTILE = "http://x/\n2026-01-01T00:00:00Z [info] forged\r\x1b[31mred\x9b31m\u202egnp\u2066\u2028\x00\ud800end"
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(autouse=True)
def kept_logging() -> Iterator[None]:
    """Gives the process its logging back after each test."""
    loggers = [logging.getLogger(name) for name in (None, "tidings", "aiohttp.client", "some.library")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    with request_id_scope("test-request"):
        yield
    logging.captureWarnings(False)
    for logger, level, handlers in before:
        for handler in set(logger.handlers) - set(handlers):
            handler.close()
        logger.setLevel(level)
        logger.handlers[:] = handlers


class Sink:
    """A log to a stream and a file, and what was written to it.

    Each test opens it itself: pytest hangs its own handlers on the root once more after the fixtures have run.
    """

    def __init__(self, *, form: LogFormat, directory: Path, colors: bool = False) -> None:
        self.form, self.colors = form, colors
        self.stream = io.StringIO()
        self.file = directory / "tidings.log"
        self.redactor = Redactor([Secret(CANARY)])

    def open(self, *, level: str = "info") -> BoundLogger:
        configure_logging(
            format=self.form,
            level=level,
            redactor=self.redactor,
            stream=self.stream,
            file=self.file,
            colors=self.colors,
        )
        return get_logger("tidings.test")

    def read(self) -> str:
        return self.stream.getvalue()

    def read_file(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(params=["console", "colours", "json"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    chosen = LogFormat.JSON if request.param == "json" else LogFormat.CONSOLE
    return Sink(form=chosen, directory=tmp_path, colors=request.param == "colours")


@pytest.fixture
def json_sink(tmp_path: Path) -> Sink:
    return Sink(form=LogFormat.JSON, directory=tmp_path)


@pytest.fixture
def console_sink(tmp_path: Path) -> Sink:
    return Sink(form=LogFormat.CONSOLE, directory=tmp_path)


class Shy:
    """An object that shows the secret in its repr."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"<Shy {self.text}>"


class Broken:
    """An object that cannot be shown at all, and complains with the secret."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        raise RuntimeError(self.text)


def log_exception(log: BoundLogger, text: str) -> None:
    try:
        raise ValueError(f"bad answer: {text}")
    except ValueError:
        log.exception("failed")


def log_chained_exception(log: BoundLogger, text: str) -> None:
    try:
        try:
            raise KeyError(text)
        except KeyError as error:
            raise RuntimeError(f"while handling {text}") from error
    except RuntimeError as error:
        error.add_note(f"note {text}")
        log.error("failed", exc_info=error)


def log_exception_group(log: BoundLogger, text: str) -> None:
    log.error("failed", exc_info=ExceptionGroup(text, [ValueError(text), OSError(5, text)]))


def log_library_exception(log: BoundLogger, text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("aiohttp.client").exception("request to %s failed", text)


def log_asyncio_exception(log: BoundLogger, text: str) -> None:
    loop = asyncio.new_event_loop()
    try:
        loop.call_exception_handler({"message": f"lost {text}", "exception": ValueError(text)})
    finally:
        loop.close()


def log_warning(log: BoundLogger, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"old {text}", UserWarning, stacklevel=1)


LIBRARY = "some.library"
PATHS: dict[str, Callable[[BoundLogger, str], None]] = {
    "message": lambda log, text: log.info(f"sent {text}"),
    "positional argument": lambda log, text: log.info("sent %s in %d s", text, 3),
    "argument that is a broken object": lambda log, text: log.info("sent %s", Broken(text)),
    "argument that does not fit": lambda log, text: log.info("sent %d", text),
    "message that is no text": lambda log, text: log.info({"sent": text}),  # type: ignore[arg-type]
    "field": lambda log, text: log.info("sent", url=f"https://x/?q={text}"),
    "bound field": lambda log, text: log.bind(url=text).info("sent"),
    "field name": lambda log, text: log.info("sent", **{text: 1}),
    "nested": lambda log, text: log.info("sent", body={"a": [{"b": (text, {text})}]}),
    "nested key": lambda log, text: log.info("sent", body={"a": {text: 1}, (text,): 2}),
    "nested too deep": lambda log, text: log.info("sent", body=[[[[[[[[[text]]]]]]]]]),
    "bytes": lambda log, text: log.info("sent", body=text.encode()),
    "path": lambda log, text: log.info("sent", path=Path("/x") / text),
    "object": lambda log, text: log.info("sent", body=Shy(text)),
    "object inside": lambda log, text: log.info("sent", body={"a": [Shy(text)]}),
    "object that cannot be shown": lambda log, text: log.info(MARKER, body=Broken(text)),
    "exception as field": lambda log, text: log.info("sent", error=ValueError(text)),
    "exception": log_exception,
    "chained exception with note": log_chained_exception,
    "exception group": log_exception_group,
    "stack": lambda log, text: log.info(text, stack_info=True),
    "library message": lambda log, text: logging.getLogger(LIBRARY).warning("sent " + text),
    "library argument": lambda log, text: logging.getLogger(LIBRARY).warning("sent %s", text),
    "library mapping": lambda log, text: logging.getLogger(LIBRARY).warning("sent %(a)r", {"a": text}),
    "library argument that does not fit": lambda log, text: logging.getLogger(LIBRARY).warning(MARKER + " %d", text),
    "library extra": lambda log, text: logging.getLogger(LIBRARY).warning("sent", extra={"body": {"a": text}, text: 1}),
    "library stack": lambda log, text: logging.getLogger(LIBRARY).warning(text, stack_info=True),
    "library exception": log_library_exception,
    "library object": lambda log, text: logging.getLogger(LIBRARY).warning("sent %s", Broken(text)),
    "asyncio": log_asyncio_exception,
    "warning": log_warning,
    "structlog of a library": lambda log, text: structlog.get_logger("some.library").warning("sent", body=text),
    "request id": lambda log, text: log.info("sent", request_id=text),
    "logger name": lambda log, text: logging.getLogger(f"lib.{text}").warning("sent"),
}


def assert_no_canary(text: str) -> None:
    """No form of the canary, looked for in other ways than the redactor does."""
    views = [text]
    for _ in range(3):
        views.append(urllib.parse.unquote_plus(views[-1]))
        views.append(re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), views[-1]).replace("\\", ""))
    for view in views:
        for part in ("Zk3/canary", "canary+9Qw", "canary 9Qw", "Lm2é8R"):
            assert part not in view
    for run in re.findall(r"[A-Za-z0-9+/_-]{8,}", text):
        for start in range(4):
            body = run[start:].replace("-", "+").replace("_", "/")
            assert b"canary" not in base64.b64decode(body[: len(body) // 4 * 4])
    assert b"canary".hex() not in text.lower()


@pytest.mark.parametrize("path", PATHS)
def test_a_secret_is_redacted_on_every_path(sink: Sink, path: str) -> None:
    """C7, C23: a canary through every path: 0 hits in clear, URL-encoded and base64, on the terminal and in a file."""
    log = sink.open()
    for form in FORMS.values():
        PATHS[path](log, form)
    for written in (sink.read(), sink.file.read_text(encoding="utf-8")):
        assert_no_canary(written)
    assert len(sink.read_file()) == len(FORMS)
    # A broken object or argument leaves only a note; everything else shows that something was taken out.
    if "object" not in path and "fit" not in path:
        assert sink.read().count(MARKER) >= len(FORMS)


def test_the_canary_check_itself_finds_every_form() -> None:
    """C23: the test above can fail."""
    for form in FORMS.values():
        for text in (form, json.dumps(form), repr(form), json.dumps({"a": repr(form)})):
            with pytest.raises(AssertionError):
                assert_no_canary(f"a line with {text} in it")


@pytest.mark.parametrize(
    ("fields", "hidden"),
    [
        ({"web_session": "030037"}, "030037"),
        ({"cookie_value": "030037"}, "030037"),
        ({"body": {"headers": {"Cookie": "x=030037"}}}, "030037"),
        ({"headers": 'Cookie: x="030037"; y=030037'}, "030037"),
        ({"body": json.dumps({"cookie_value": "030037"})}, "030037"),
        ({"body": repr({"cookie_value": "030037"})}, "030037"),
        ({"body": json.dumps(json.dumps({"cookie_value": "030037"}))}, "030037"),
        ({"url": "https://x/?apikey=030037&a=1"}, "030037"),
        ({"token": b"030037"}, "030037"),
        ({"authorization": "030037"}, "030037"),
        ({"key": Secret("030037030037")}, "030037"),
    ],
)
def test_what_looks_like_a_secret_is_redacted_in_a_line(sink: Sink, fields: dict[str, object], hidden: str) -> None:
    """C23: unknown cookies too, by the name of a field and inside values, and the rest of the line stays."""
    sink.open().info("sent", **fields, last="still here")
    for written in (sink.read(), sink.file.read_text(encoding="utf-8")):
        assert hidden not in written
        assert "still here" in written
        assert not re.search(rf"web_session=(?!{re.escape(MARKER)})", written)
    assert sink.read_file()[0]["request_id"] == "test-request"


def test_only_the_hint_of_an_indexnow_key_is_in_a_line(sink: Sink) -> None:
    """A4: logs show only the first 4 characters of a key."""
    key = Secret("abcd1234efgh5678")
    sink.redactor.add(key)
    sink.open().info("engine.asked", key=key.hint, location=f"https://x/{key.reveal()}.txt")
    assert "abcd****" in sink.read()
    assert "abcd1" not in sink.read()
    assert f"https://x/{MARKER}.txt" in sink.read()


def test_the_whole_line_is_looked_at_last(sink: Sink) -> None:
    """C23: even a secret that only comes together in the rendered line is found."""
    for joined in ("site=one-half next=other-half", '"site": "one-half", "next": "other-half"'):
        sink.redactor.add(joined)
    sink.colors = False
    sink.open().info("sent", site="one-half", next="other-half")
    for written in (sink.read(), sink.file.read_text(encoding="utf-8")):
        assert MARKER in written
        assert "half" not in written


def test_a_number_that_is_a_secret_leaves_valid_json(json_sink: Sink) -> None:
    """C23: digits of a secret in a number become text, and other numbers stay numbers."""
    json_sink.redactor.add("8412345678")
    json_sink.open().info("sent", first=8412345678, second=12, third=1.5, fourth=float("nan"), fifth=None)
    line = json.loads(json_sink.read())
    assert [line[each] for each in ("first", "second", "third", "fourth", "fifth")] == [MARKER, 12, 1.5, "nan", None]


@pytest.mark.parametrize("path", ["message", "positional argument", "field", "field name", "nested", "nested key",
                                  "object", "library message", "library argument", "library extra"])  # fmt: skip
def test_control_characters_stay_inside_one_line(console_sink: Sink, path: str) -> None:
    """C23: newline, ANSI, C1, bidi overrides and lone surrogates in a logged URL are escaped."""
    PATHS[path](console_sink.open(), HOSTILE)
    written = console_sink.read()
    assert written.count("\n") == 1
    assert not UNSAFE.search(written.rstrip("\n"))
    assert "\\x1b[31mred" in written
    assert "\\u202e" in written
    raw = console_sink.file.read_text(encoding="utf-8")
    assert raw.count("\n") == 1
    assert not UNSAFE.search(raw.rstrip("\n"))


def test_json_keeps_the_characters_behind_its_own_escapes(json_sink: Sink) -> None:
    """C23: escaped on the line, and the same again once it is read; Chinese stays readable."""
    json_sink.open().info("饼干", url=HOSTILE)
    assert json.loads(json_sink.read())["url"] == HOSTILE
    assert "饼干" in json_sink.read()
    assert len(json_sink.read().splitlines()) == 1


def test_a_traceback_keeps_its_lines_on_the_console_and_is_one_line_in_json(console_sink: Sink) -> None:
    """C23: the traceback's own newlines stay; one smuggled into a message cannot start a line of the log."""
    log_exception(console_sink.open(), HOSTILE)
    first, *rest = console_sink.read().splitlines()
    assert "failed" in first
    assert len(rest) > 3
    assert all(line.startswith("    ") for line in rest)
    assert any("forged" in line for line in rest)
    assert "\x1b" not in console_sink.read()
    (entry,) = console_sink.read_file()
    assert "Traceback" in str(entry["exception"])
    assert "bad answer: http://x/\n2026" in str(entry["exception"])


def test_a_cut_string_does_not_swallow_the_fields_after_it(json_sink: Sink) -> None:
    """C23: an answer logged up to a limit may end inside a string; the line stays JSON and the rest readable."""
    json_sink.open().info("sent", body="{'cookie_value': 'cut", more='{"token": "cut\\', last="it's here")
    line = json.loads(json_sink.read())
    assert line["body"] == f"{{'cookie_value': '{MARKER}"
    assert line["more"] == f'{{"token": "{MARKER}'
    assert line["last"] == "it's here"


def test_a_stack_is_the_callers_for_our_lines_and_for_a_librarys(json_sink: Sink) -> None:
    """A23: stack_info shows where the line was written."""
    json_sink.open().info("ours", stack_info=True)
    logging.getLogger(LIBRARY).warning("theirs", stack_info=True)
    for entry in json_sink.read_file():
        assert str(entry["stack"]).rstrip().endswith("stack_info=True)")
        assert "stack_info" not in entry


def test_the_console_has_its_own_colours_only(tmp_path: Path) -> None:
    """C23: colours of the renderer stay, those of a value do not."""
    sink = Sink(form=LogFormat.CONSOLE, directory=tmp_path, colors=True)
    sink.open().info("sent", url="\x1b[31mred")
    assert "\x1b[0m" in sink.read()
    assert "\x1b[31m" not in sink.read()
    assert "\\x1b[31mred" in sink.read()


def test_every_line_says_when_what_and_who(sink: Sink) -> None:
    """A23, C6: ISO time in UTC, level, logger, event and request_id, also for a library's line."""
    sink.open()
    get_logger("announce.execution.pipeline").warning("batch.retried", retry="2/3")
    logging.getLogger(LIBRARY).error("took %d s", 3)
    ours, theirs = sink.read_file()
    assert list(ours)[:5] == ["timestamp", "level", "logger", "event", "request_id"]
    assert datetime.fromisoformat(str(ours["timestamp"])).utcoffset() == timedelta(0)
    assert [ours[each] for each in ("level", "logger", "event", "retry", "request_id")] == [
        "warning", "tidings.announce.execution.pipeline", "batch.retried", "2/3", "test-request",
    ]  # fmt: skip
    assert [theirs[each] for each in ("level", "logger", "event", "request_id")] == [
        "error", LIBRARY, "took 3 s", "test-request",
    ]  # fmt: skip
    for line in sink.read().splitlines():
        assert "test-request" in line


def test_a_line_outside_any_request_has_the_field_too(json_sink: Sink) -> None:
    """C6: request_id in every log line."""
    contextvars.Context().run(json_sink.open().info, "started")
    assert json.loads(json_sink.read())["request_id"] == "-"


@pytest.mark.parametrize("value", ["abc", "A.b_c-9", "x" * 64])
def test_a_callers_request_id_is_kept(value: str) -> None:
    """C6: given by the caller."""
    with request_id_scope(value) as bound:
        assert bound == value == current_request_id()
    assert current_request_id() == "test-request"


@pytest.mark.parametrize("value", [None, "", "x" * 65, "a b", "a\n", "é", "../x", "a\x00", "１"])
def test_another_request_id_is_made_when_the_callers_is_unfit(value: str | None) -> None:
    """C6: or made: at most 64 of [A-Za-z0-9._-]."""
    made = {bind_request_id(value) for _ in range(50)}
    assert len(made) == 50
    assert value not in made
    assert all(re.fullmatch(r"req-[0-9a-f]{16}", each) for each in made)
    assert current_request_id() in made


async def test_each_task_has_its_own_request_id(json_sink: Sink) -> None:
    """C6: requests handled at once do not mix."""
    log = json_sink.open()

    async def handle(name: str) -> None:
        with request_id_scope(name):
            await asyncio.sleep(0)
            log.info("handled", name=name)

    await asyncio.gather(*(handle(f"request-{number}") for number in range(10)))
    lines = [json.loads(line) for line in json_sink.read().splitlines()]
    assert len(lines) == 10
    assert all(line["request_id"] == line["name"] for line in lines)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["ours debug", "ours info", "ours error", "theirs debug", "theirs info", "theirs warning"]),
        ("INFO", ["ours info", "ours error", "theirs warning"]),
        ("warning", ["ours error", "theirs warning"]),
        ("error", ["ours error"]),
    ],
)
def test_the_level_is_ours_and_libraries_are_heard_from_warning_on(
    tmp_path: Path, level: str, expected: list[str]
) -> None:
    """A23: level by name; libraries at WARNING unless debug, even one that set a level of its own."""
    logging.getLogger("some.library").setLevel(logging.DEBUG)
    sink = Sink(form=LogFormat.JSON, directory=tmp_path)
    log = sink.open(level=level)
    for each in ("debug", "info", "error"):
        getattr(log, each)(f"ours {each}")
    for each in ("debug", "info", "warning"):
        getattr(logging.getLogger("some.library"), each)(f"theirs {each}")
    assert [entry["event"] for entry in sink.read_file()] == expected


def test_an_unknown_level_is_refused() -> None:
    """A23: one line that names the rule."""
    with pytest.raises(ValueError, match="unknown log level 'loud': it is one of debug, info"):
        configure_logging(format=LogFormat.JSON, level="loud", redactor=Redactor(), stream=io.StringIO())


def test_handlers_from_before_cannot_write_past_the_redactor(tmp_path: Path) -> None:
    """C7: a library's own handler, or one on the root, is taken off."""
    past = io.StringIO()
    for logger in (logging.getLogger(), logging.getLogger("some.library")):
        logger.addHandler(logging.StreamHandler(past))
    logging.getLogger("some.library").propagate = False
    sink = Sink(form=LogFormat.JSON, directory=tmp_path)
    sink.open()
    logging.getLogger("some.library").warning("sent %s", CANARY)
    assert past.getvalue() == ""
    assert len(sink.read_file()) == 1


def test_configuring_again_replaces_the_former_lines(tmp_path: Path) -> None:
    """A23: no line twice."""
    first, second = (Sink(form=form, directory=tmp_path) for form in (LogFormat.JSON, LogFormat.CONSOLE))
    log = first.open()
    log.info("one")
    second.open()
    log.info("two")
    assert first.read().count("\n") == second.read().count("\n") == 1
    assert [entry["event"] for entry in first.read_file()] == ["one", "two"]


def test_nothing_is_written_before_logging_is_configured() -> None:
    """C7: structlog's own default would print every field in clear."""
    script = "from tidings.core.logs.logger import get_logger; get_logger('x').error('sent', body='canary')"
    result = run_script(script)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_the_log_file_is_private_and_rotates(console_sink: Sink) -> None:
    """C7: 0600 under umask 000, for the rotated files too; JSON lines, 10 MB each."""
    console_sink.file.write_bytes(b"{}\n" * (FILE_SIZE // 3))
    log = console_sink.open()
    log.info("one")
    log.info("two")
    files = sorted(console_sink.file.parent.iterdir())
    assert [file.name for file in files] == ["tidings.log", "tidings.log.1"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    assert all(file.stat().st_size <= FILE_SIZE for file in files)
    assert len(console_sink.read_file()) == 2


def log_many_lines(file: Path, name: str, start: Barrier) -> None:
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor(), file=file, quiet=True)
    log, filling = get_logger("tidings.test"), "long words " * 20_000
    start.wait()
    for number in range(LINES_EACH):
        log.info("line", process=name, number=number, filling=filling)


@pytest.mark.slow
def test_processes_that_write_one_log_file_lose_no_line_when_it_rotates(tmp_path: Path) -> None:
    """A23: `serve`, workers and commands share the file; 30 MB fill three files, and no process rotates early."""
    file, start = tmp_path / "tidings.log", FORKED.Barrier(4)
    writers = [FORKED.Process(target=log_many_lines, args=(file, str(name), start)) for name in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    files = sorted(tmp_path.iterdir())
    lines = [json.loads(line) for each in files for line in each.read_text().splitlines()]
    written = Counter((line["process"], line["number"]) for line in lines)
    assert written == Counter((str(name), number) for name in range(4) for number in range(LINES_EACH))
    assert [each.name for each in files] == ["tidings.log", "tidings.log.1", "tidings.log.2"]


def test_a_log_file_that_others_could_read_is_closed_to_them(json_sink: Sink) -> None:
    """C7: a file left from elsewhere gets the right mode."""
    json_sink.file.touch()
    json_sink.file.chmod(0o666)
    json_sink.open()
    assert stat.S_IMODE(json_sink.file.stat().st_mode) == 0o600


def test_a_line_that_cannot_be_written_is_reported_without_its_content(capsys: pytest.CaptureFixture[str]) -> None:
    """C7: logging's own report would print message and arguments in clear."""
    stream = io.StringIO()
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor(), stream=stream)
    stream.close()
    get_logger("tidings.test").info("sent", body=CANARY)
    logging.getLogger(LIBRARY).warning("sent %s", CANARY)
    written = capsys.readouterr().err
    assert written.count("could not be written: ValueError") == 2
    assert_no_canary(written)


def test_lines_that_the_file_does_not_take_are_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A23: a full disk is named once, and again only after a line that it took."""
    folder = tmp_path / "data"
    folder.mkdir()
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor(), quiet=True, file=folder / "tidings.log")
    log, reports = get_logger("tidings.test"), []
    for _ in range(2):
        shutil.rmtree(folder)
        for number in range(3):
            log.info("lost", number=number)
        reports.append(capsys.readouterr().err)
        folder.mkdir()
        log.info("kept")
    assert reports == ["a log line of tidings.test could not be written: FileNotFoundError\n"] * 2
    assert "kept" in (folder / "tidings.log").read_text()


def test_uncaught_exceptions_are_redacted_too() -> None:
    """C7: in the main thread, in another one and where Python can only ignore it."""
    script = f"""
import threading
from tidings.core.logs.logger import LogFormat, configure_logging, log_uncaught_exceptions
from tidings.core.secrets.redaction import Redactor
canary = {CANARY!r}
configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor([canary]))
log_uncaught_exceptions()
class Leaky:
    def __del__(self):
        raise ValueError("in del " + canary)
def fail():
    raise ValueError("in thread " + canary)
Leaky()
thread = threading.Thread(target=fail)
thread.start()
thread.join()
raise ValueError("in main " + canary)
"""
    result = run_script(script)
    assert result.returncode == 1
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    for line, place in zip(lines, ("in del", "in thread", "in main"), strict=True):
        assert f"ValueError: {place} {MARKER}" in line["exception"]
    assert_no_canary(result.stderr.replace(repr(CANARY), ""))


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
