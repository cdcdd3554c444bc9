"""Opens an installation: data directory, master key, tables and HTTP clients; closes it in the end."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from tidings.announce.site.site import parse_engines
from tidings.core.clock import Clock, SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import find_revision, newest_revision, prepare_database, wait_for_revision
from tidings.core.net.addresses import HostPort, UrlError, parse_url
from tidings.core.net.client import GuardedClient
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.master_key import KeyRingError
from tidings.core.secrets.redaction import Redactor
from tidings.settings.settings import Settings
from tidings.storage import find_database_url, open_key_ring, prepare_data_dir
from tidings.wiring.installation import USER_AGENT, Installation


@asynccontextmanager
async def open_installation(
    settings: Settings, *, redactor: Redactor | None = None, clock: Clock | None = None, migrate: bool = True
) -> AsyncIterator[Installation]:
    """Open an installation and end what dead processes left running. Raises DestinationError, KeyRingError.

    The data directory, the master key and the tables are created at first start; older tables are brought up to date.
    Unless `migrate`, it waits until another process has done so, and raises OlderDatabaseError.
    `redactor` learns every secret; pass the one that logging was configured with. `clock`: the system's by default.
    """
    prepare_data_dir(settings.data_dir)
    redactor = redactor or Redactor()
    for each in settings.secrets.values():
        redactor.add(each)
    async with AsyncExitStack() as stack:
        process_lock = ProcessLock(settings.data_dir)
        stack.callback(process_lock.close)
        keys, made_key = open_key_ring(settings, redactor=redactor)
        database = open_database(find_database_url(settings), connections=settings.database_connections)
        stack.push_async_callback(database.close)
        is_new = False
        if migrate:
            is_new = await prepare_tables(database)
        else:
            await wait_for_revision(database, clock=clock or SystemClock())
        installation = Installation(
            settings=settings,
            clock=clock or SystemClock(),
            redactor=redactor,
            process_lock=process_lock,
            keys=keys,
            made_key=made_key,
            is_new=is_new,
            database=database,
            client=await stack.enter_async_context(make_client(settings)),
            own_client=await stack.enter_async_context(make_client(settings, is_own=True)),
        )
        await installation.executions.recover()
        yield installation


def make_client(
    settings: Settings, *, is_own: bool = False, user_agent: str = USER_AGENT, connections: int | None = None
) -> GuardedClient:
    """An HTTP client. `is_own`: for the addresses that the settings name. `connections`: for each host."""
    return GuardedClient(
        user_agent=user_agent,
        allow_networks=settings.allow_networks,
        allow_hosts=list_own_hosts(settings) if is_own else (),
        # A connection for each request in flight: a request that waits for one would be sent later than its turn.
        connections_per_host=connections or max(6, settings.max_concurrent_requests),
    )


def list_own_hosts(settings: Settings) -> frozenset[HostPort]:
    """Hosts and ports of the addresses that the settings name: engines, webhook, and base URLs of services.

    Requests to them need no permission of their own.
    """
    feishu = settings.collect.feishu
    urls = (
        *(engine.endpoint for engine in parse_engines(settings.engines)),
        settings.bases.bing,
        settings.bases.baidu,
        settings.bases.google,
        *settings.crawl.base_urls.values(),
        *(url.reveal() for url in (settings.webhook_url, settings.ping_url) if url is not None),
        *([] if feishu is None else [feishu.base_url]),
    )
    found = set()
    for url in urls:
        # The code that uses an invalid URL refuses it.
        with suppress(UrlError):
            parsed = parse_url(url)
            found.add((parsed.host, parsed.port))
    return frozenset(found)


async def check_stored_secrets(installation: Installation) -> None:
    """Check that one stored secret of each master key can be opened. Raises KeyRingError.

    A process that cannot open them would take jobs from the others and fail. A master key that was created just now is
    removed again.
    """
    from tidings.collect.crawl.cookies.table import check_cookie_keys

    try:
        await installation.sites.check_keys()
        await check_cookie_keys(installation.database, keys=installation.keys)
    except KeyRingError as error:
        if installation.made_key is not None:
            installation.made_key.unlink()
        raise KeyRingError(
            f"the stored keys and cookies cannot be opened ({error}); nothing was changed. Set it to the master key of "
            "the machine that stored them"
        ) from None


async def prepare_tables(database: Database) -> bool:
    """Create the tables of a new database, or bring older ones up to date. Returns whether it is new."""
    revision = await find_revision(database)
    if revision is None:
        load_tables()
    if revision != newest_revision():
        await prepare_database(database)
    return revision is None


def load_tables() -> None:
    """Import the modules that define tables, apart from those that are imported with this one."""
    import tidings.announce.schedule.seen_hooks
    import tidings.collect.candidate_counts
    import tidings.collect.crawl.cookies.table
    import tidings.collect.mirror_tables
    import tidings.collect.tables
    import tidings.core.queue.schema
    import tidings.core.queue.workers
    import tidings.core.secrets.sessions
    import tidings.core.secrets.tokens  # noqa: F401
