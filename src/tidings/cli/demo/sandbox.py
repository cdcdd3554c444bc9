"""`tidings sandbox`: stand-ins for the site, the engines and the platforms."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.language import say
from tidings.cli.session import Session, command, stop_on_signals
from tidings.core.clock import SystemClock
from tidings.core.stop import Stop, StopRequestedError

if TYPE_CHECKING:
    from tidings.sandbox.bundle import Addresses


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

    stop = Stop(clock=SystemClock())
    with stop_on_signals(stop), suppress(StopRequestedError):
        await stop.wait_for(serve_sandbox(port=port, pages=pages, on_ready=_show_addresses))


def _show_addresses(addresses: "Addresses") -> None:
    for title, address in _list_addresses(addresses):
        typer.echo(f"{title} {address}")
    typer.echo(say("Copy these variables into another terminal:"))
    for name, value in _list_variables(addresses).items():
        _show_command(f"export {name}='{value}'", indent="")
    engines = " ".join(f"--engine {endpoint}" for endpoint in addresses.endpoints.values())
    typer.echo(say("Then announce:"))
    _show_command(f"tidings announce {addresses.sitemap_url} --key {addresses.key} {engines}")
    typer.echo(say("or, with Bing, Baidu and Google:"))
    added = f"tidings sites add {addresses.sitemap_url} --key {addresses.key} {engines} --bing-key -"
    changed = f"tidings sites set {addresses.host}"
    _show_command(f"echo {addresses.bing_key} | {added}")
    _show_command(f"echo {addresses.baidu_token} | {changed} --baidu-token -")
    credentials = f"curl -s {addresses.google_url}/credentials.json -o google.json"
    _show_command(f"{credentials} && {changed} --google-credentials google.json")
    _show_command(f"tidings run {addresses.host}")
    typer.echo(say("or collect:"))
    for name, cookie in _list_cookies().items():
        _show_command(f"echo '{cookie}' | tidings cookies add my-{name} --platform {name}")
    _show_command("export $(tidings collect feishu setup --yes | grep '^FEISHU_TABLE_')")
    _show_command("tidings collect keywords add bilibili 咖啡")
    for step in ("discover", "run", "mirror"):
        _show_command(f"tidings collect {step}")
    typer.echo(say("Ctrl-C ends it."))


def _show_command(command: str, *, indent: str = "  ") -> None:
    typer.echo(f"{indent}{command}")


def _list_addresses(addresses: "Addresses") -> Iterator[tuple[str, str]]:
    """Each stand-in: its title and its address."""
    yield say("Site:   "), addresses.sitemap_url
    for name, endpoint in addresses.endpoints.items():
        yield say("Engine: "), f"{endpoint} ({name})"
    yield say("Bing:   "), say("{url} (key {key})", url=addresses.bing_url, key=addresses.bing_key)
    yield say("Baidu:  "), say("{url} (token {token})", url=addresses.baidu_url, token=addresses.baidu_token)
    yield say("Google: "), say("{url} (credentials: {url}/credentials.json)", url=addresses.google_url)
    for name, origin in addresses.platforms.items():
        yield say("Media:  "), f"{origin} ({name})"
    yield say("Feishu: "), say("{url} (an empty base)", url=addresses.feishu_url)
    yield say("Webhook:"), str(addresses.webhook_url)
    yield say("Control:"), f"{addresses.control_url} (docs/rehearsal.md)"


def _list_variables(addresses: "Addresses") -> dict[str, str]:
    """The settings that point Tidings to the sandbox."""
    from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN

    # The open web has no address of its own.
    bases = {name: origin for name, origin in addresses.platforms.items() if name != "openweb"}
    return {
        "TIDINGS_ALLOW_NETWORKS": "127.0.0.0/8",
        "TIDINGS_DATA_DIR": "./rehearsal",
        "TIDINGS_TOKEN": "try-the-sandbox-on-this-machine",
        "TIDINGS_RETRY_SCALE": "0.1",
        "BING_API_BASE": str(addresses.bing_url),
        "BAIDU_API_BASE": str(addresses.baidu_url),
        "GOOGLE_API_BASE": str(addresses.google_url),
        **{f"{name.upper()}_BASE_URL": origin for name, origin in bases.items()},
        "TIDINGS_FEEDS": f"{addresses.platforms['openweb']}/feed.rss",
        "PLATFORM_INTERVAL_SECONDS": "0",
        "COOKIE_INTERVAL_SECONDS": "0",
        "FEISHU_BASE_URL": str(addresses.feishu_url),
        "FEISHU_APP_ID": DEMO_APP_ID,
        "FEISHU_APP_SECRET": DEMO_APP_SECRET,
        "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
        "TIDINGS_ALERT_URLS": str(addresses.bot_url),
        "TIDINGS_WEBHOOK_URL": str(addresses.webhook_url),
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
