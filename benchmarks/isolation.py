"""What it costs to read pages and feeds in a child process, beside reading them in this one.

python -m benchmarks.isolation [--pages 200]
"""

import argparse
import asyncio
import time

from tidings.collect.crawl.platforms.open_web.articles import describe_article
from tidings.core.isolation.pool import ChildPool

ARTICLE = "tidings.collect.crawl.platforms.open_web.articles:describe_article"


def make_page(paragraphs: int) -> bytes:
    text = "".join(
        f"<p>Paragraph {number}: {'coffee on the mountain, early, and quiet. ' * 6}</p>" for number in range(paragraphs)
    )
    menu = "".join(f'<li><a href="/{number}">Menu {number}</a></li>' for number in range(60))
    page = f"<html><head><title>On coffee</title></head><body><ul>{menu}</ul><article>{text}</article></body></html>"
    return page.encode()


async def measure(pages: int) -> None:
    pool = ChildPool(2)
    arguments = {"platform": "web", "note_id": "n", "url": "https://example.org/a", "content_type": "text/html"}
    began = time.perf_counter()
    await pool.run(ARTICLE, make_page(5), **arguments)
    print(f"first page, with the start of the child: {(time.perf_counter() - began) * 1000:.0f} ms")
    print(f"{'page':>10} {'here':>12} {'child':>12} {'more':>10} {'CPU here':>14}")
    for paragraphs in (5, 40, 400, 4_000):
        body = make_page(paragraphs)
        count = max(3, pages * 5 // paragraphs)
        # The parser keeps what it has seen: both get as many pages before the count.
        describe_article(body, **arguments)
        await pool.run(ARTICLE, body, **arguments)
        inside, outside, cpu = [], [], []
        for _ in range(count):
            began = time.perf_counter()
            describe_article(body, **arguments)
            inside.append(time.perf_counter() - began)
            began, used = time.perf_counter(), time.process_time()
            await pool.run(ARTICLE, body, **arguments)
            outside.append(time.perf_counter() - began)
            cpu.append(time.process_time() - used)
        here, child, ours = (min(each) * 1e6 for each in (inside, outside, cpu))
        print(f"{len(body) / 1024:7.0f} KB {here:9.0f} µs {child:9.0f} µs {child - here:7.0f} µs {ours:11.0f} µs")
    await pool.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=200)
    asyncio.run(measure(parser.parse_args().pages))
