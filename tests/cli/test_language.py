"""Command output in Chinese: the catalogue has every text that the commands say, and the commands use it."""

import ast
import asyncio
import re
import tomllib
from collections.abc import Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from aiohttp.abc import AbstractResolver

import tidings.cli
from tests.cli.terminal import Terminal, announce_words, make_sandbox
from tidings.announce.overview import NEEDS_ATTENTION
from tidings.audit.report import ADVICE, CheckName
from tidings.cli.language import CATALOGUE, speak
from tidings.cli.output import make_console
from tidings.collect.crawl.cookies.states import CookieStatus
from tidings.collect.feishu.errors import (
    CODE_RULES,
    MISSING_KEY,
    NO_TABLE,
    OTHER_TARGET,
    FeishuError,
    make_unreachable,
    make_unreadable,
    make_wrong_type,
)
from tidings.collect.tables import CandidateStatus
from tidings.core.alerts.translation import Translator
from tidings.core.execution_table import ExecutionStatus
from tidings.core.net.client import FetchError, GuardedClient
from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN, SandboxBitable
from tidings.sandbox.feishu.tables import BitableFieldType
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE, SandboxWeibo
from tidings.wiring.alerts import list_catalogues

pytestmark = pytest.mark.one_database

# A word for one or many is none: Chinese has one word for both.
FIELD = re.compile(r"\{[^}|]*\}")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


# The place of the text among the arguments of functions that ask the catalogue for it.
SAYING = {"say": 0, "fail": 0, "show": 0, "answer": 1}


def find_said(node: ast.AST) -> ast.expr | None:
    """The text of a call that asks the catalogue; None for any other node."""
    name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
    return node.args[SAYING[name]] if isinstance(node, ast.Call) and name in SAYING else None


# Values that are shown as words, by `say_word`.
WORDS = {value.value for value in (*ExecutionStatus, *NEEDS_ATTENTION, *CandidateStatus, *CookieStatus)}


def list_texts() -> Iterator[str]:
    """Every text that a command says. It must be written out where it is said, unless it is said already."""
    yield from WORDS
    for path in Path(tidings.cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = find_said(node)
            if isinstance(text, ast.Constant):
                yield str(text.value)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "say":
                # `fail`, `show` and `answer` hand their text on.
                assert getattr(text, "id", "") == "text", f"{path}:{node.lineno}"


# What people read goes through these; their words must come from the catalogue.
SHOWING = {"echo", "fail", "show", "answer", "print", "print_table", "make_table", "confirm", "prompt"}
# Help, lines to be typed, an engine's answer, a reason for the log, and names that `translate` knows.
SILENT = {
    *("say", "make_group", "text", "Option", "Argument", "option"),
    *("_SiteOption", "_show_command", "Fault", "request", "KnownSecret"),
}
CLI = Path(tidings.cli.__file__).parent
SPEAKING = sorted(str(path.relative_to(CLI)) for path in CLI.rglob("*.py"))
SENTENCE = re.compile(r"[A-Za-z]{2,} [A-Za-z]{2,}")
WORD = re.compile(r"[A-Za-z]{3,}")
# Markup, and the names of options.
MARKUP = re.compile(r"\[/?[a-z ]*\]|--[a-z-]+")


def list_unsaid(tree: ast.Module) -> Iterator[str]:
    """English words that a command shows without asking the catalogue: sentences anywhere, single words where they are
    shown. Help, docstrings and annotations stay English."""
    silent: set[ast.AST] = {said for node in ast.walk(tree) if isinstance(said := find_said(node), ast.Constant)}
    for node in ast.walk(tree):
        name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if name in SILENT or is_docstring:
            silent.update(ast.walk(node))
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            silent.update(ast.walk(annotation) if annotation is not None else ())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in SHOWING:
            words = [str(each.value) for part in node.args for each in _list_strings(part) if part not in silent]
            yield from (
                each
                for each in words
                if WORD.search(MARKUP.sub("", each).removeprefix("tidings: ").removeprefix("tidings "))
            )
        if isinstance(node, ast.Constant) and node not in silent and SENTENCE.search(str(node.value)):
            # The name of a command stays as it is.
            yield from () if str(node.value).startswith("tidings ") else [str(node.value)]


def _list_strings(part: ast.expr) -> list[ast.Constant]:
    """The texts of an argument itself: a literal, the parts of an f-string, or those of a starred tuple."""
    if isinstance(part, ast.Constant):
        return [part] if isinstance(part.value, str) else []
    if isinstance(part, ast.JoinedStr):
        return [each for each in part.values if isinstance(each, ast.Constant)]
    if isinstance(part, ast.Starred) and isinstance(part.value, ast.Tuple):
        return [text for each in part.value.elts for text in _list_strings(each)]
    return []


@pytest.mark.parametrize("file", SPEAKING)
def test_a_command_shows_no_words_that_the_catalogue_does_not_know(file: str) -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh. A text that is shown goes through `say`."""
    tree = ast.parse((Path(tidings.cli.__file__).parent / file).read_text())
    assert list(list_unsaid(tree)) == []


# Where commands meet errors and findings of other rooms, and the calls that carry their words.
ROOMS = (
    "announce",
    "settings",
    "core/net",
    "core/db",
    "core/secrets/master_key.py",
    "core/backup",
    "core/alerts",
    "storage.py",
)
CARRYING = re.compile(
    "SiteError|SettingError|UrlError|RefusedSitemapError|UnavailableError|add_trouble|Remark|DatabaseUrlError|"
    "DataDirectoryError|KeyFileError|WeakKeyError|MalformedKeyError|DestinationError|DeliveryError|.*BackupError|InUseError|"
    "refuse|RefusedError|RedirectError|ForbiddenAddressError|PrivateAddressError"
)


def write_sample(node: ast.expr) -> str:
    """The text that an expression builds, with a number for each part that differs."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    parts = node.values if isinstance(node, ast.JoinedStr) else ()
    return "".join(str(each.value) if isinstance(each, ast.Constant) else "7" for each in parts)


def list_carried(rooms: Collection[str], carrying: re.Pattern[str]) -> Iterator[str]:
    """The words of every error and finding that a command may show."""
    package = Path(tidings.__file__).parent
    for room in rooms:
        found = package / room
        for path in [found] if found.is_file() else found.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or "migrations" in path.parts:
                    continue
                if carrying.fullmatch(getattr(node.func, "id", getattr(node.func, "attr", ""))):
                    values = [*node.args, *(keyword.value for keyword in node.keywords)]
                    yield from (sample for each in values if SENTENCE.search(sample := write_sample(each)))


def test_errors_and_findings_of_other_rooms_have_chinese_words() -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh. A broken rule, a sitemap that cannot be read, a file that is no backup."""
    translator = Translator(list_catalogues())
    carried = set(list_carried(ROOMS, CARRYING))
    assert len(carried) > 100
    assert sorted(text for text in carried if not CHINESE.search(translator.translate(text))) == []
    wrong = "sitemapUrl: only http:// and https:// URLs are fetched; it must be a URL such as https://example.com/sitemap.xml"
    assert translator.translate(wrong) == (
        "sitemapUrl：只支持 http:// 和 https:// 网址；须为网址，如 https://example.com/sitemap.xml"
    )
    refused = "https://a.example/s.xml failed: no connection: Connection refused"
    assert translator.translate(refused).endswith("无法建立连接：连接被拒绝")
    quota = "it must be a whole number from 1 to 500, or auto"
    assert translator.translate(quota) == "须为 1 到 500 的整数，或 auto"


class HangingResolver(AbstractResolver):
    async def resolve(self, *_: object, **__: object) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        """Do nothing."""


async def test_an_answer_that_does_not_come_in_time_is_said_in_chinese() -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh. The commonest fault of a sitemap or a platform."""
    async with GuardedClient(user_agent="t", resolver=HangingResolver()) as client:
        with pytest.raises(FetchError) as raised:
            await client.request("GET", "http://a.example/s.xml", timeout=timedelta(milliseconds=10))
    translated = Translator(list_catalogues()).translate(str(raised.value))
    assert translated == "http://a.example/s.xml 失败：0.01 秒内没有完整的应答"


def test_each_of_several_reasons_is_translated_on_its_own() -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh. Of two files, one became the other's status; a mix of languages came out."""
    files = "https://a.example/1.xml", "https://a.example/2.xml"
    missing = [f"{file} failed: the server answered 404 instead of a sitemap" for file in files]
    said = "；".join(f"{file} 读取失败：服务器返回 404，而不是站点地图" for file in files)
    translate = Translator(list_catalogues()).translate
    assert translate("; ".join(missing)) == said
    assert translate("; ".join([*missing, "and 17 more"])) == f"{said}；另有 17 条"


def test_every_error_of_a_platform_has_chinese_words() -> None:
    """C13, interfaces: TIDINGS_LANGUAGE=zh. A person reads them beside a candidate, a cookie and a keyword."""
    translator = Translator(list_catalogues())
    meanings = {
        f"weibo: {text} (HTTP 400)" for text in list_carried(["collect/crawl"], re.compile(r"blame_\w+")) if text
    }
    assert len(meanings) > 30
    errors = set(list_carried(["collect/crawl", "collect/note_urls.py"], re.compile("CrawlError|NoteUrlError")))
    assert len(errors) > 20
    assert sorted(text for text in meanings | errors if not CHINESE.search(translator.translate(text))) == []
    said = "weibo: the session is refused, log in again (HTTP 403)"
    assert translator.translate(said) == "weibo：登录状态被拒绝，请重新登录（HTTP 403）"


# Where the audit finds something, and the calls that carry its words.
AUDIT_ROOMS = ("audit", "cli/operations/audit.py", "core/secrets/token_strength.py")
AUDIT_CARRYING = re.compile("find|_?warn|_report|build|skip|KnownSecret|FoundSecret|EncryptedColumn|OSError|ValueError")


def test_findings_of_the_audit_have_chinese_words() -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh. Names of checks, what they covered, findings and advice."""
    translator = Translator(list_catalogues())
    carried = set(list_carried(AUDIT_ROOMS, AUDIT_CARRYING))
    assert len(carried) > 30
    # The name of a row follows.
    carried = {f"{text} 7" if text.endswith(" of") or text == "the cookie" else text for text in carried}
    carried |= set(ADVICE.values())
    carried |= {name.value.replace("_", " ") for name in CheckName}
    assert sorted(text for text in carried if not CHINESE.search(translator.translate(text))) == []
    # A colon in the first of two sentences makes no label of it.
    assert [text for text in ADVICE.values() if "once in clear" in translator.translate(text)] == []


def test_the_catalogue_has_every_text_and_no_other() -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh; no text is missing, none is left over, and both have the same fields."""
    chinese = tomllib.loads(CATALOGUE.read_text())
    assert set(list_texts()) == set(chinese)
    assert [text for text in chinese if set(FIELD.findall(text)) != set(FIELD.findall(chinese[text]))] == []
    assert [text for text in chinese if not CHINESE.search(chinese[text]) and CHINESE.search(text)] == []


async def test_announce_says_its_summary_in_chinese(terminal: Terminal) -> None:
    """A23: summary, table and errors."""
    terminal.variables["TIDINGS_LANGUAGE"] = "zh"
    async with make_sandbox(pages=5) as sandbox:
        ran = await terminal.run(*announce_words(sandbox))
        unknown = await terminal.run("run", "nowhere.example")
    assert ran.code == 0
    assert "成功" in ran.out
    assert "共 5 页，待推送 5 页，已推送过 0 页" in ran.out
    assert ran.out.splitlines()[1].split()[:2] == ["引擎", "已接受"]
    assert (unknown.code, "没有站点 'nowhere.example'" in unknown.err) == (2, True)


def test_every_error_of_feishu_has_a_chinese_text() -> None:
    """C21, interfaces: TIDINGS_LANGUAGE=zh. What it means, and what a person can do."""
    translator = Translator(list_catalogues())
    made = [
        *map(FeishuError, CODE_RULES.values()),
        FeishuError(MISSING_KEY).unsettle(),
        *map(FeishuError, (MISSING_KEY, NO_TABLE, OTHER_TARGET)),
        *(make_unreachable("timeout"), make_unreadable(ValueError()), make_wrong_type("count", wanted="Number")),
    ]
    for text in {text for error in made for text in (str(error), error.action) if text}:
        assert CHINESE.search(translator.translate(text)), text


async def test_what_feishu_refuses_is_said_in_chinese(terminal: Terminal) -> None:
    """C21, interfaces: TIDINGS_LANGUAGE=zh. On the terminal, in the status, at the setup; and a wrong cursor."""
    async with SandboxBitable() as feishu:
        terminal.variables |= {
            "TIDINGS_LANGUAGE": "zh",
            "FEISHU_APP_ID": DEMO_APP_ID,
            "FEISHU_APP_SECRET": "another-secret-0123456789",
            "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
            "FEISHU_TABLE_SOURCE": "tblSources",
            "FEISHU_BASE_URL": feishu.origin,
        }
        mirrored = await terminal.run("collect", "mirror")
        status = await terminal.run("collect", "status")
        setup = await terminal.run("collect", "feishu", "setup", "--dry-run")
    listed = await terminal.run("collect", "notes", "list", "--cursor", "x")
    assert mirrored.err.startswith("tidings: tbl_source：应用的 Secret 错误")
    assert "最近的错误：应用的 Secret 错误" in status.out
    assert "应用的 Secret 错误" in setup.err
    assert "请检查 FEISHU_APP_ID 和 FEISHU_APP_SECRET" in setup.err
    assert "--cursor 须为上一页给出的值" in listed.err


@pytest.mark.thorough
async def test_collect_says_its_results_in_chinese(terminal: Terminal) -> None:
    """C21, C24: from the setup of Feishu to the status; JSON and settings stay as they are."""
    base = {"tblDefault": {"文本": BitableFieldType.TEXT}}
    async with SandboxWeibo() as weibo, SandboxBitable(tables=base) as feishu:
        terminal.variables |= {
            "TIDINGS_LANGUAGE": "zh",
            "WEIBO_BASE_URL": weibo.origin,
            "PLATFORM_INTERVAL_SECONDS": "0",
            "COOKIE_INTERVAL_SECONDS": "0",
            "FEISHU_APP_ID": DEMO_APP_ID,
            "FEISHU_APP_SECRET": DEMO_APP_SECRET,
            "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
            "FEISHU_BASE_URL": feishu.origin,
        }
        setup = await terminal.run("collect", "feishu", "setup", "--yes")
        terminal.variables |= dict(line.split("=") for line in setup.out.splitlines() if line.startswith("FEISHU_"))
        nothing = await terminal.run("collect", "discover")
        await terminal.pipe("cookies", "add", "mine", "--platform", "weibo", given=DEMO_WEIBO_COOKIE)
        feishu.edit_records("tbl_keyword", add=[{"keyword": "bread", "platform": "weibo"}])
        await terminal.run("collect", "mirror")
        found = await terminal.run("collect", "discover")
        ran = await terminal.run("collect", "run")
        mirrored = await terminal.run("collect", "mirror")
        status = await terminal.run("collect", "status")
        document = (await terminal.run("collect", "status", "--json")).document
        answer = feishu.rows(feishu.find_table("tbl_keyword"))[0]["status"]
    assert "tbl_cookie: 创建数据表和全部字段" in setup.out
    assert (nothing.code, "没有监控任何关键词" in nothing.err) == (2, True)
    assert answer == "监控中"
    assert "找到 10 条，新增 10 条" in found.out
    assert ran.out.splitlines()[0].split()[:3] == ["平台", "状态", "已采集"]
    assert mirrored.out.startswith("新增 2")
    assert "飞书：没有等待同步的变化。" in status.out
    assert "可用的 Cookie：weibo 1/1。" in status.out
    assert document["candidates"]["weibo"]["collected"] == 10


@pytest.mark.thorough
async def test_commands_of_collect_speak_chinese_throughout(terminal: Terminal) -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh. Cookies, keywords, candidates and notes: no English sentence is left."""
    async with SandboxWeibo() as weibo:
        terminal.variables |= {
            "TIDINGS_LANGUAGE": "zh",
            "WEIBO_BASE_URL": weibo.origin,
            "PLATFORM_INTERVAL_SECONDS": "0",
            "COOKIE_INTERVAL_SECONDS": "0",
        }
        ended = [await terminal.pipe("cookies", "add", "mine", "--platform", "weibo", given=DEMO_WEIBO_COOKIE)]
        lines = (
            *("cookies add mine --platform weibbo", "cookies check mine", "cookies set mine --daily-limit 100"),
            *("cookies list", "cookies set mine", "cookies enable nobody", "collect keywords add web tea"),
            *(
                "collect keywords add weibo bread --pages 20",
                "collect keywords list",
                "collect discover",
                "collect run",
            ),
            *("collect failed", "collect retry", "collect recover", "collect resume weibo", "collect status"),
            *("collect notes list --search nothing", "collect notes show weibo 0", "collect notes list --kind song"),
            *("collect keywords pause weibo jam", "cookies remove mine", "status"),
        )
        ended += [await terminal.run(*words.split()) for words in lines]
    english = re.compile(r"(?<![`\w-])[a-z]{2,} [a-z]{2,} [a-z]{2,}")
    shown = [re.sub(r"`[^`]*`", "", each.out + each.err) for each in ended]
    assert [text for text in shown if english.search(text) or not CHINESE.search(text)] == []
    # Weibo tells the number of the account alone.
    assert "已登录：7。\n" in shown


@pytest.mark.thorough
async def test_commands_of_announce_speak_chinese_throughout(terminal: Terminal) -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh. Look-ups, files of sites, dry runs, warnings and bad input: no English sentence
    is left."""
    terminal.variables |= {"TIDINGS_LANGUAGE": "zh", "TIDINGS_BACKOF": "1", "TIDINGS_RESUBMIT_GAP_SECONDS": "600"}
    (terminal.folder / "bad.json").write_text('{"sites": [{"id": "a b", "sitemapUrl": "x"}]}')
    (terminal.folder / "odd.json").write_text("[1]")
    async with make_sandbox(pages=5) as sandbox:
        url, key, page = sandbox.site.sitemap_url, sandbox.site.key, sandbox.site.url(1)
        engine = ("--engine", sandbox.engines[0].endpoint)
        lines = (
            *(
                "sites list",
                f"sites add {url} --id shop --key {key}",
                "sites set shop",
                "sites set shop --bing-quota 900",
            ),
            *("sites export sites.json", "sites import sites.json", "sites import sites.json --dry-run"),
            *(
                "sites import bad.json",
                "sites import odd.json",
                "sites import none.json",
                "sites set shop --schedule x",
            ),
            *("run shop --channel bing", "pause shop", "status shop", "resume shop", "pause", "resume", "stop shop"),
            *("announce", f"announce {url} --since x --key {key}", f"announce {url} --key short"),
            *(f"announce --url {page} --key {key}", f"announce --url {page} --url ftp://x --key {key}"),
            *(f"announce {url} --key {key} --dry-run", f"ledger find {page}", "ledger find https://a.example/"),
            *("ledger forget shop --since x", "ledger forget shop --since 2026-11-15", "keys status", "workers"),
            *("tokens revoke admin", "tokens revoke admin --name x", "tokens new site", "alerts test", "alerts list"),
            *("backup data.backup", "restore data.backup", "restore bad.json --yes", "database downgrade 99 --yes"),
            *("sites remove shop", "serve --no-work --port 0", "worker", "worker --queue x"),
        )
        words = [line.split() for line in lines]
        ended = [await terminal.run(*each, *(engine if each[0] == "announce" else ())) for each in words]
    english = re.compile(r"(?<![`\w-])[a-z]{2,} [a-z]{2,} [a-z]{2,}")
    shown = [re.sub(r"`[^`]*`", "", each.out + each.err) for each in ended]
    assert [text for text in shown if english.search(text) or not CHINESE.search(text)] == []


async def test_check_says_its_findings_in_chinese(terminal: Terminal) -> None:
    """A23: what is right, what is wrong, and what to do."""
    terminal.variables["TIDINGS_LANGUAGE"] = "zh"
    async with make_sandbox(pages=5) as sandbox:
        url, key = sandbox.site.sitemap_url, sandbox.site.key
        good = await terminal.run("check", url, "--key", key)
        wrong = await terminal.run("check", url, "--key", key[:-1])
    assert "正确 密钥文件：" in good.out
    assert (good.code, wrong.code) == (0, 1)
    assert [line.split()[0] for line in good.out.splitlines()] == ["正确", "正确"]
    assert "密钥文件" in good.out
    assert "不存在（HTTP 404）" in wrong.out
    assert "请在该地址放一个纯文本文件，内容只有密钥。" in wrong.out


def test_a_chinese_line_is_broken_by_the_terminal_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh. Rich would break at the only space, and leave most of the line empty."""
    line = "推送 " + "页" * 120
    try:
        speak("zh")
        make_console().print(line)
    finally:
        speak("en")
    assert capsys.readouterr().out == f"{line}\n"
