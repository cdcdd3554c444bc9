"""The fast path and the parser read every document alike, however it is cut."""

import random
import re

import pytest

from tests.announce.sitemap.documents import make_document
from tests.announce.sitemap.outcome import Outcome, cut_at, cut_body, read_body, read_chunks
from tidings.announce.sitemap.body import RefusedSitemapError, SitemapBody
from tidings.announce.sitemap.fast_xml import FastXmlBody
from tidings.announce.sitemap.xml_body import XmlBody

SEEDS = range(600)
BATCHES = [range(start, start + 50) for start in range(0, 600, 50)]
NAIVE = re.compile(rb"<url>.*?<loc>\s*(.*?)\s*</loc>.*?</url>", re.DOTALL)


class CarelessContent(FastXmlBody):
    """A fast path that trusts every `</url>` it sees: what the rule about where it may be used is for."""

    def _stands_between(self) -> bool:
        return self.fault is None


def read_in_random_cuts(body: bytes, chance: random.Random, *, fast: bool) -> Outcome:
    places = chance.choices(range(len(body) + 1), k=chance.randint(1, 40))
    return read_chunks(cut_at(body, places=places), fast=fast, block=1)


def read_content(content: SitemapBody, body: bytes) -> object:
    """Read without the reader around it; gives what can be compared."""
    try:
        content.read(body)
        content.finish()
    except RefusedSitemapError as error:
        return str(error)
    return content.take_pairs(), content.fault


@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"from_{seeds[0]}")
def test_fast_path_and_parser_give_the_same_whatever_the_document_and_the_cuts(seeds: range) -> None:
    """A5, A7, A8: same pairs, same fault at the same byte, same refusal."""
    for seed in seeds:
        body, chance = make_document(seed), random.Random(seed)
        expected = read_body(body, fast=False)
        assert read_body(body) == expected, seed
        assert read_in_random_cuts(body, chance, fast=False) == expected, seed
        assert read_in_random_cuts(body, chance, fast=True) == expected, seed
        assert read_in_random_cuts(body, chance, fast=True) == expected, seed


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [range(start, start + 20) for start in range(1_000, 1_080, 20)], ids=lambda s: s[0])
def test_fast_path_and_parser_give_the_same_byte_by_byte(seeds: range) -> None:
    """A5, A7, A8: the hardest cuts of all."""
    for seed in seeds:
        body = make_document(seed)
        expected = read_body(body, fast=False)
        assert read_chunks(cut_body(body, size=1), block=1) == expected, seed
        assert read_chunks(cut_body(body, size=1), block=1, fast=False) == expected, seed


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "parser"])
@pytest.mark.parametrize("filler", [100, 8_000, 9_000, 80_000])
def test_block_that_a_chunk_ends_in_is_not_mistaken_for_its_end(filler: int, fast: bool) -> None:
    """A8: what follows within a long comment looks plain, and is not."""
    start = b"<urlset><url><loc>http://a/</loc></url><url><!-- " + b" " * filler
    rest = b" <url><loc>http://comment/</loc></url> --><loc>http://b/</loc></url></urlset>"
    outcome = read_chunks([b" " * 2_000 + start, rest], block=1, fast=fast)
    assert (outcome.locs, outcome.fault) == (["http://a/", "http://b/"], None)


def test_documents_put_the_fast_path_to_use_and_to_the_test() -> None:
    """A5: the equality above is worth something only if the fast path read much, went back to it, and could err."""
    outcomes = [read_body(make_document(seed)) for seed in SEEDS]
    assert sum(outcome.skimmed for outcome in outcomes) > 2_000
    assert sum(0 < outcome.skimmed < len(outcome.pairs) - 1 for outcome in outcomes) > 100
    assert sum(outcome.fault is not None for outcome in outcomes) > 50
    assert sum(outcome.refusal is not None for outcome in outcomes) > 10
    assert sum(outcome.too_long for outcome in outcomes) > 20


@pytest.mark.thorough
def test_single_bytes_reach_the_fast_path_too() -> None:
    """A5: the byte-by-byte runs above do compare two paths."""
    outcomes = [read_chunks(cut_body(make_document(seed), size=1), block=1) for seed in range(1_000, 1_040)]
    assert sum(outcome.skimmed for outcome in outcomes) > 100


def test_naive_pattern_reads_the_same_documents_wrongly() -> None:
    """A8: the documents hold what a pattern without a parser gets wrong."""
    wrong = 0
    for seed in SEEDS:
        outcome = read_body(make_document(seed))
        if outcome.refusal is None and outcome.fault is None:
            wrong += NAIVE.findall(make_document(seed)) != [loc for loc, _ in outcome.pairs]
    assert wrong > 100


def test_fast_path_without_its_rule_would_be_caught() -> None:
    """A8: a fast path that does not ask where the parser stands differs from the parser in these documents."""
    wrong = 0
    for seed in SEEDS:
        body = make_document(seed).lstrip(b"\n \t\xef\xbb\xbf")
        wrong += read_content(CarelessContent(), body) != read_content(XmlBody(), body)
    assert wrong > 20
