"""`tidings sandbox`: stand-ins for the site, the engines and the platforms."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.language import say
from tidings.cli.output import show
from tidings.cli.session import Session, command, stop_on_signals
from tidings.core.clock import SystemClock
from tidings.core.stop import Stop, StopRequestedError

if TYPE_CHECKING:
    from tidings.sandbox.bundle import Sandbox

_PLATFORMS = ("bilibili", "xiaohongshu", "weibo", "openweb")


@command
async def sandbox(
    session: Session,
    port: Annotated[
        int,
        typer.Option(help="The site's port; the others take the next ones. 0: any free ones.", min=0, max=65_500),
    ] = 8801,
    pages: Annotated[int, typer.Option(help="The number of pages of the site.", min=1)] = 3000,
) -> None:
    """Start stand-ins for a site, engines and platforms.

    Also for Bing, Baidu, Google, Feishu and a receiver of webhooks. They answer as the real ones do. A control address
    sets their faults (docs/rehearsal.md). Ctrl-C ends them.
    """
    from tidings.sandbox.bundle import serve_sandbox

    with stop_on_signals(Stop(clock=SystemClock())) as stop, suppress(StopRequestedError):
        await stop.wait_for(serve_sandbox(port=port, pages=pages, on_ready=_show_addresses))


def _show_addresses(sandbox: "Sandbox") -> None:
    from tidings.sandbox.engines.baidu import DEMO_BAIDU_TOKEN
    from tidings.sandbox.engines.bing import DEMO_BING_KEY

    addresses, site = {name: other.address for name, other in sandbox.others.items()}, sandbox.site
    for title, address in _list_addresses(sandbox, addresses):
        typer.echo(f"{title} {address}")
    show("Copy these variables into another terminal:")
    typer.echo("\n".join(f"export {name}='{value}'" for name, value in _list_variables(addresses).items()))
    engines = " ".join(f"--engine {engine.endpoint}" for engine in sandbox.engines)
    show("Then announce:")
    _show_command(f"tidings announce {site.sitemap_url} --key {site.key} {engines}")
    show("or, with Bing, Baidu and Google:")
    added = f"tidings sites add {site.sitemap_url} --key {site.key} {engines} --bing-key -"
    changed = f"tidings sites set {site.host}"
    _show_command(f"echo {DEMO_BING_KEY} | {added}")
    _show_command(f"echo {DEMO_BAIDU_TOKEN} | {changed} --baidu-token -")
    credentials = f"curl -s {addresses['google']}/credentials.json -o google.json"
    _show_command(f"{credentials} && {changed} --google-credentials google.json")
    _show_command(f"tidings run {site.host}")
    show("or collect:")
    for name, cookie in _list_cookies().items():
        _show_command(f"echo '{cookie}' | tidings cookies add my-{name} --platform {name}")
    _show_command("export $(tidings collect feishu setup --yes | grep '^FEISHU_TABLE_')")
    _show_command("tidings collect keywords add bilibili 咖啡")
    for step in ("discover", "run", "mirror"):
        _show_command(f"tidings collect {step}")
    show("Ctrl-C ends it.")


def _show_command(command: str) -> None:
    typer.echo(f"  {command}")


def _list_addresses(sandbox: "Sandbox", addresses: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each stand-in: its title and its address."""
    from tidings.sandbox.engines.baidu import DEMO_BAIDU_TOKEN
    from tidings.sandbox.engines.bing import DEMO_BING_KEY

    yield say("Site:   "), sandbox.site.sitemap_url
    for engine in sandbox.engines:
        yield say("Engine: "), f"{engine.endpoint} ({engine.name})"
    yield say("Bing:   "), say("{url} (key {key})", url=addresses["bing"], key=DEMO_BING_KEY)
    yield say("Baidu:  "), say("{url} (token {token})", url=addresses["baidu"], token=DEMO_BAIDU_TOKEN)
    yield say("Google: "), say("{url} (credentials: {url}/credentials.json)", url=addresses["google"])
    for name in _PLATFORMS:
        yield say("Media:  "), f"{addresses[name]} ({name})"
    yield say("Feishu: "), say("{url} (an empty base)", url=addresses["feishu"])
    yield say("Webhook:"), addresses["webhook"]
    yield say("Control:"), f"{sandbox.control_url} (docs/rehearsal.md)"


def _list_variables(addresses: Mapping[str, str]) -> dict[str, str]:
    """The settings that point Tidings to the sandbox."""
    from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN
    from tidings.sandbox.feishu.bot import BOT_PATH, DEMO_BOT

    return {
        "TIDINGS_ALLOW_NETWORKS": "127.0.0.0/8",
        "TIDINGS_DATA_DIR": "./rehearsal",
        "TIDINGS_TOKEN": "try-the-sandbox-on-this-machine",
        "TIDINGS_RETRY_SCALE": "0.1",
        **{f"{name.upper()}_API_BASE": addresses[name] for name in ("bing", "baidu", "google")},
        # The open web has no address of its own.
        **{f"{name.upper()}_BASE_URL": addresses[name] for name in _PLATFORMS if name != "openweb"},
        "TIDINGS_FEEDS": f"{addresses['openweb']}/feed.rss",
        "PLATFORM_INTERVAL_SECONDS": "0",
        "COOKIE_INTERVAL_SECONDS": "0",
        "FEISHU_BASE_URL": addresses["feishu"],
        "FEISHU_APP_ID": DEMO_APP_ID,
        "FEISHU_APP_SECRET": DEMO_APP_SECRET,
        "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
        "TIDINGS_ALERT_URLS": addresses["feishu"] + BOT_PATH + DEMO_BOT,
        "TIDINGS_WEBHOOK_URL": addresses["webhook"],
    }


def _list_cookies() -> dict[str, str]:
    """A cookie that each platform takes."""
    from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE
    from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE
    from tidings.sandbox.media.xiaohongshu import DEMO_XIAOHONGSHU_COOKIE

    return {
        "bilibili": DEMO_BILIBILI_COOKIE,
        "weibo": DEMO_WEIBO_COOKIE,
        "xiaohongshu": DEMO_XIAOHONGSHU_COOKIE,
    }
