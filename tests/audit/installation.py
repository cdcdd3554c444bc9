"""A whole installation to audit: a real database with sites, cookies, tokens and a note, a log, a backup, keys."""

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import text as text_of

import tidings
from tests.fakes import FakeClock
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import make_site
from tidings.announce.site.table import Origin, SiteRecords
from tidings.audit.audit import AuditSubject, run_audit
from tidings.audit.report import AuditReport, Check, CheckName
from tidings.audit.secret_finder import KnownSecret
from tidings.collect.write.cookies import CookieRecords, make_cookie
from tidings.core.backup.backup import write_backup
from tidings.core.db.database import Database
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.tokens import Tokens

CANARY = "040069b1kanarienvogel+7f3b9c/1d=="
COOKIE = f"web_session={CANARY}; a1={CANARY[::-1]}; plain=1"
INDEXNOW_KEY = "7c1e55d2a9b84f60"
BING_KEY = "0badc0de5eed4f1aa7b1c2d3e4f50617"
TOKEN = "tid-own-6Zq1xW8vR3nK5mT7"
WEBHOOK_SECRET = "whsec_q83vEjRWeJCrze8SNFZ4kA"
SECRETS = (CANARY, CANARY[::-1], INDEXNOW_KEY, BING_KEY, TOKEN, WEBHOOK_SECRET)


@dataclass(frozen=True, slots=True)
class Planted:
    """An installation, to plant a fault in and audit."""

    subject: AuditSubject
    database: Database

    @property
    def data_dir(self) -> Path:
        return self.subject.data_dir

    async def audit(self, **changes: object) -> AuditReport:
        """The report, which never contains a secret."""
        report = await run_audit(replace(self.subject, **changes))  # type: ignore[arg-type]
        text = json.dumps(report.describe(), ensure_ascii=False)
        assert [secret for secret in (*SECRETS, *self._master_keys()) if secret in text] == []
        assert [check.name for check in report.checks] == list(CheckName)
        return report

    async def fail(self, name: CheckName, *, also: Collection[CheckName] = (), **changes: object) -> Check:
        """The check of this name, which is the one that fails."""
        report = await self.audit(**changes)
        assert {check.name for check in report.checks if not check.passed} == {name, *also}
        assert report.passed is False
        return find_check(report, name)

    async def execute(self, statement: str, values: Mapping[str, object] | None = None) -> None:
        async with self.database.write() as connection:
            await connection.execute(text_of(statement), values or {})

    async def add_note(self, text: str) -> int:
        """Store a collected note, as the writer does; returns its row."""
        values = {"text": text, "url": f"https://example.com/{len(text)}"}
        await self.execute(
            "INSERT INTO tbl_source (platform, note_id, idempotency_key, note_url, kind, title, author_id, author_name,"
            " content, source_keyword, dated_at, version, is_latest, status, due_at, retry_count, exec_meta,"
            " collected_at) VALUES ('web', :url, :url, :url, 'article', :text, :text, :text, :text, '', 0, 1, true,"
            " 'pending', 0, 0, '{}', 0)",
            values,
        )
        async with self.database.read() as connection:
            return int((await connection.execute(text_of("SELECT max(id) FROM tbl_source"))).scalar_one())

    async def back_up(self, path: Path) -> Path:
        await write_backup(self.database, path, clock=FakeClock(), release="1")
        return path

    def write(self, name: str, content: str | bytes) -> Path:
        """A private file in the data directory."""
        path = self.data_dir / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o600)
        return path

    def _master_keys(self) -> Sequence[str]:
        return [] if self.subject.master_key is None else [self.subject.master_key.reveal().rstrip("=")]


def find_check(report: AuditReport, name: CheckName) -> Check:
    return next(check for check in report.checks if check.name is name)


def tell(check: Check) -> list[tuple[str, str]]:
    return [(finding.where, finding.what) for finding in check.findings]


async def build_installation(folder: Path, database: Database) -> Planted:
    data_dir, work = folder / "data", folder / "work"
    data_dir.mkdir(mode=0o700)
    work.mkdir()
    (work / "notes.txt").write_text("web_session is the name of a cookie\n")
    master_key = new_master_key()
    await _fill(database, KeyRing.parse(master_key))
    planted = Planted(
        AuditSubject(
            data_dir=data_dir,
            database_url=Secret(database.url.render_as_string(hide_password=False)),
            package=Path(tidings.__file__).parent,
            repository=work,
            master_key=Secret(master_key),
            secrets=[KnownSecret("TIDINGS_TOKEN", Secret(TOKEN))],
            tokens={"TIDINGS_TOKEN": Secret(TOKEN)},
        ),
        database,
    )
    planted.write("tidings.log", '{"event": "cookie.stored", "header": "web_session=***REDACTED***"}\n')
    planted.write("webhook.secret", f"{WEBHOOK_SECRET}\n")
    await planted.back_up(data_dir / "nightly.backup")
    return planted


async def _fill(database: Database, keys: KeyRing) -> None:
    clock = FakeClock()
    site = make_site(
        site_id="mine",
        sitemap_urls=["https://example.com/sitemap.xml"],
        key=INDEXNOW_KEY,
        bing=BingSettings.make(enabled=True, key=BING_KEY),
    )
    await SiteRecords(database, keys=keys, clock=clock).save(site, origin=Origin.API)
    cookie = make_cookie("one", platform="xiaohongshu", secret=Secret(COOKIE))
    await CookieRecords(database, keys=keys, clock=clock).add(cookie)
    await Tokens(database, clock=clock).make(Scope.ADMIN, name="first")


def copy_package(target: Path) -> Path:
    """Tidings' own code, to be changed."""
    source = Path(tidings.__file__).parent
    return Path(shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__")))
