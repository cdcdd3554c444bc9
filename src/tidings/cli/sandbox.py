"""`tidings sandbox`: stand-ins for the site, the engines and the platforms."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.session import Session, command, stop_on_signals
from tidings.core.clock import SystemClock
from tidings.core.stop import Stop, StopRequestedError

if TYPE_CHECKING:
    from tidings.sandbox import Addresses


@command
async def sandbox(
    session: Session,
    port: Annotated[int, typer.Option(help="The site's port; the others take the next ones. 0: any free ones.")] = 8801,
    pages: Annotated[int, typer.Option(help="The number of pages of the site.", min=1)] = 3000,
) -> None:
    """Start stand-ins for a site, engines and platforms.

    They answer as the real ones do. A control address sets their faults. Ctrl-C ends them.
    """
    from tidings.sandbox import serve_sandbox

    stop = Stop(clock=SystemClock())
    with stop_on_signals(stop), suppress(StopRequestedError):
        await stop.wait_for(serve_sandbox(port=port, pages=pages, on_ready=_show_addresses))


def _show_addresses(addresses: "Addresses") -> None:
    from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE

    engines = " ".join(f"--engine {endpoint}" for endpoint in addresses.endpoints.values())
    typer.echo(f"Site:    {addresses.sitemap_url}")
    for name, endpoint in addresses.endpoints.items():
        typer.echo(f"Engine:  {endpoint} ({name})")
    typer.echo(f"Bing:    {addresses.bing_url} (key {addresses.bing_key})")
    typer.echo(f"Baidu:   {addresses.baidu_url} (token {addresses.baidu_token})")
    for name, origin in addresses.platforms.items():
        typer.echo(f"Media:   {origin} ({name})")
    typer.echo(f"Control: {addresses.control_url}")
    typer.echo("Try, in another terminal:")
    typer.echo(
        f"  TIDINGS_ALLOW_NETWORKS=127.0.0.0/8 tidings announce {addresses.sitemap_url} --key {addresses.key} {engines}"
    )
    typer.echo("or, with Bing:")
    typer.echo(f"  export TIDINGS_ALLOW_NETWORKS=127.0.0.0/8 BING_API_BASE={addresses.bing_url}")
    typer.echo(
        f"  tidings sites add {addresses.sitemap_url} --key {addresses.key} {engines} --bing-key {addresses.bing_key}"
    )
    typer.echo(f"  tidings run {addresses.host}")
    typer.echo("or, to crawl (with --platform weibo, xiaohongshu too), in two terminals with these variables:")
    bases = " ".join(f"{name.upper()}_BASE_URL={origin}" for name, origin in _list_bases(addresses))
    typer.echo(f"\texport TIDINGS_ALLOW_NETWORKS=127.0.0.0/8 TIDINGS_TOKEN=try-the-sandbox-on-this-machine {bases}")
    typer.echo(f"\techo '{DEMO_BILIBILI_COOKIE}' | tidings cookies add mine --platform bilibili; tidings serve")
    typer.echo(
        "\tcurl -X POST http://127.0.0.1:8080/crawler/search -H 'Authorization: Bearer try' "
        """-H 'Content-Type: application/json' -d '{"platform": "bilibili", "keyword": "tea"}'"""
    )
    typer.echo("Ctrl-C ends it.")


def _list_bases(addresses: "Addresses") -> list[tuple[str, str]]:
    """The platforms whose address is a setting; the open web has none."""
    return [(name, origin) for name, origin in addresses.platforms.items() if name != "openweb"]
