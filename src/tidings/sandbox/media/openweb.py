"""The stand-in of a small web site with a blog: an RSS and an Atom feed, articles with menus around them, a home page
that names its feed, and robots.txt. Each refusal is a ready fault.
"""

from datetime import timedelta
from email.utils import format_datetime
from html import escape

from aiohttp import web

from tidings.sandbox.media.posts import Post, PostLibrary
from tidings.sandbox.wire.answers import HTML, SandboxAnswer
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.stand_in import SandboxExchange, StandIn, Visit

RSS_PATH = "/feed.rss"
ATOM_PATH = "/feed.atom"


FORBIDDEN = Fault(status=403)
GONE = Fault(status=410)
NOT_FOUND = Fault(status=404)
TOO_MANY_REQUESTS = Fault(status=429)
UNAVAILABLE = Fault(status=503)
CAPTCHA_PAGE = Fault(status=403, headers={"Content-Type": HTML}, body="<title>Just a moment...</title>")
EMPTY_BODY = Fault(status=200)
A_FILE = Fault(status=200, headers={"Content-Type": "application/pdf"}, body="%PDF-1.7")
# A page that scripts build in the browser.
NO_ARTICLE = Fault(
    status=200, headers={"Content-Type": HTML}, body="<html><div id=app></div><script>run()</script></html>"
)
LOOP = Fault(status=302, headers={"Location": "/loop"})
TO_PRIVATE = Fault(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data/"})
RESET = Fault(FaultKind.RESET)
DRIP = Fault(FaultKind.DRIP, drip_bytes=1, drip_pause=timedelta(seconds=1))


class SandboxOpenWeb(StandIn[Visit]):
    """A blog of thirty posts. `robots` is its robots.txt; None: the site has none."""

    def __init__(self, *, robots: str | None = None) -> None:
        super().__init__("openweb")
        self.library = PostLibrary(30)
        self.robots = robots

    @property
    def rss_url(self) -> str:
        return self.origin + RSS_PATH

    @property
    def atom_url(self) -> str:
        return self.origin + ATOM_PATH

    def url(self, number: int) -> str:
        return f"{self.origin}{article_path(number)}"

    def read_request(self, request: web.BaseRequest, body: bytes) -> Visit:
        return Visit(urls=(self.origin + request.raw_path,))

    async def judge(self, exchange: SandboxExchange, asked: Visit) -> SandboxAnswer:
        path = exchange.request.raw_path.partition("?")[0]
        if path == "/robots.txt":
            return SandboxAnswer(404) if self.robots is None else SandboxAnswer(200, self.robots.encode())
        if path == "/":
            return SandboxAnswer(200, _render_home().encode(), {}, HTML)
        if path == RSS_PATH:
            return SandboxAnswer(200, self._render_rss().encode(), {}, "application/rss+xml")
        if path == ATOM_PATH:
            return SandboxAnswer(200, self._render_atom().encode(), {}, "application/atom+xml")
        post = next((post for post in self.library if article_path(post.number) == path), None)
        return SandboxAnswer(404) if post is None else SandboxAnswer(200, _render_article(post).encode(), {}, HTML)

    def _render_rss(self) -> str:
        items = "".join(
            f"<item><title>{escape(post.title)}</title><link>{self.url(post.number)}</link>"
            f"<description>{escape(f'<p>{escape(post.text)}</p>')}</description>"
            f"<pubDate>{format_datetime(post.published)}</pubDate><category>{post.tags[0]}</category></item>"
            for post in self.library
            if post.tags
        )
        return f'<?xml version="1.0"?><rss version="2.0"><channel><title>Sandbox</title>{items}</channel></rss>'

    def _render_atom(self) -> str:
        entries = "".join(
            f'<entry><title type="html">{escape(escape(post.title))}</title><link href="{article_path(post.number)}"/>'
            f"<id>tag:sandbox,{post.number}</id><updated>{post.published.isoformat()}</updated>"
            f"<summary>{escape(post.text)}</summary></entry>"
            for post in self.library
        )
        return f'<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>Sandbox</title>{entries}</feed>'


def article_path(number: int) -> str:
    return f"/articles/{number:05d}.html"


def _render_home() -> str:
    link = f'<link rel="alternate" type="application/rss+xml" href="{RSS_PATH}">'
    return f"<!doctype html><html><head><title>Sandbox</title>{link}</head><body><h1>Sandbox</h1></body></html>"


def _render_article(post: Post) -> str:
    paragraphs = "".join(
        f"<p>{escape(line)} {'这一段说得很细，读起来不快。' * 6}</p>" for line in post.text.split("\n")
    )
    return (
        f'<!doctype html><html lang="zh"><head><title>{escape(post.title)} | Sandbox</title>'
        f'<meta property="og:title" content="{escape(post.title)}"><meta name="author" content="Ada Lovelace">'
        f'<meta property="article:published_time" content="{post.published.isoformat()}">'
        f'<meta name="keywords" content="{",".join(post.tags)}">'
        f'<meta property="og:image" content="https://example.org/{post.number}.jpg"></head><body>'
        '<nav><a href="/">Home</a> <a href="/about">About this site</a></nav>'
        f"<article><h1>{escape(post.title)}</h1>{paragraphs}</article>"
        "<footer>Imprint and privacy</footer><script>track()</script></body></html>"
    )
