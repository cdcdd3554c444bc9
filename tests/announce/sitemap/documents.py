"""Random sitemaps, well-formed and not, made to lead a reader astray that takes a short cut.

The same seed gives the same document. Every oddity here is something that a parser reads in one way and a pattern
may read in another.
"""

import random

_PADDING = f"<!-- {'padding ' * 150}-->"
_HEADERS = ['<?xml version="1.0" encoding="UTF-8"?>\n', "<?xml version='1.0'?>", "", "\n \t\ufeff", "\ufeff"]
_ROOTS = ["urlset"] * 12 + ["sm:urlset", "sitemapindex", "feed", "rss"]
_ATTRIBUTES = ["", ' xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"', ' a="!-- >"', "\n\txmlns:image='i'\n"]
_TAILS = ["</{root}>"] * 8 + [
    "",
    "</{root}>\n<!-- </url> -->\n",
    "</{root}>junk",
    "</{root}><url><loc>http://late/</loc></url>",
    "</wrong>",
    "<url><loc>http://cut",
    "<url><loc>http://cut/</loc></url><!-- <url><loc>http://never/</loc></url>",
    "<![CDATA[<url><loc>http://open/</loc></url>",
]

_WHOLE = [
    "<url><loc>{u}</loc></url>",
    "\n  <url>\n    <loc>{u}</loc>\n    <lastmod>{d}</lastmod>\n  </url>",
    "<url><loc>{u}</loc><lastmod>{d}</lastmod><changefreq>daily</changefreq><priority>0.5</priority></url>\r\n",
    "\t<url>\r<loc> {u}\t</loc>\n<lastmod>\n{d} </lastmod><priority> 0 . 1 </priority>\r</url>",
]
# Put together at random: what may stand in a block besides its URL, and the texts and references in it.
_EXTRAS = [
    "<lastmod>{d}</lastmod>",
    "<changefreq>weekly</changefreq>",
    "<priority>0.5</priority>",
    "<image:image><image:loc>http://image/{t}</image:loc><image:title>{t}</image:title></image:image>\n",
    "<image:image>\r\n<image:caption>{t}</image:caption></image:image>",
    "<image:image></image:image>",
    "<video:video><video:title>{t}</video:title><video:duration>5</video:duration></video:video>",
    "<news:news><news:publication><news:name>{t}</news:name><news:language>zh</news:language></news:publication>"
    "<news:title>{t}</news:title></news:news>",
    '<xhtml:link rel="alternate" hreflang="de" href="http://x/?{t}"/>',
    '<xhtml:link\n href="{t}" rel="alternate"\threflang="zh" />',
]
_STRANGE_EXTRAS = [
    "<lastmod>{t}</lastmod>",
    "<loc>http://second/</loc>",
    "<image:image><image:loc>{t}</image:title></image:image>",
    "<image:image><loc>http://foreign/</loc></image:image>",
    "<image:image><image:loc>{t}<b/></image:loc></image:image>",
    "<video:video><video:player_loc allow_embed='yes'>{t}</video:player_loc></video:video>",
    "<video:video><image:title>{t}</image:title></video:video>",
    "<news:news><news:publication><news:title>{t}</news:title></news:publication></news:news>",
    '<xhtml:link rel="a" rel="b" href="c"/>',
    '<xhtml:link rel="a" hreflang="b" href="{t}<"/>',
    '<xhtml:link rel="a"hreflang="b" href="c"/>',
]
_TEXTS = ["", "a", "&amp;", "&lt;&gt;&quot;&apos;", "&#38;", "&#x26;", "&amp;amp;", "é", "中文", " ", "\n"]
_STRANGE_TEXTS = [
    "&nbsp;", "&", "&#0;", "&#31;", "&#128;", "&#x1F600;", "&#X26;", "&#038;", "&#127;", "&#xA0;", "&#32;", "\u00a0",
    "\u3000", "\uffff", "\ufffe", "\uff21", "😀", "\x7f", "\x85", ">", "]]>", "x" * 2_047, "&amp;" * 500, "中" * 800,
]  # fmt: skip
_ODD = [
    "<url><loc>{u}</loc><lastmod></lastmod></url>",
    "<url><loc>{u}</loc><lastmod/></url>",
    "<url><loc>{u}</loc><changefreq/><priority></priority></url>",
    "<url><lastmod>{d}</lastmod><loc>{u}</loc></url>",
    "<url><loc>{u}</loc><priority>1</priority><lastmod>{d}</lastmod></url>",
    "<url><loc>{u}</loc><lastmod>{d}</lastmod><lastmod>1999</lastmod><loc>http://second/</loc></url>",
    "<url><loc>{u}</loc><lastmod>2020-01-01 10:00:00</lastmod></url>",
    "<url><loc>{u}</loc><lastmod>am 3. März</lastmod></url>",
    "<url><loc>{u}?a=1&amp;b=2</loc></url>",
    "<url><loc>{u}?a=1&#38;b=&#x2f;</loc><lastmod>{d}</lastmod></url>",
    "<url><loc>{u}?a>b</loc></url>",
    "<url><loc>{u} with spaces\nand lines</loc></url>",
    "<url><loc><![CDATA[{u}?a=1&b=</url>]]></loc></url>",
    "<url><loc>http://é.example/ü/中文</loc><lastmod>{d}</lastmod></url>",
    "<url><loc>\u00a0{u}\u00a0</loc></url>",
    "<url><loc>{u}\x7f</loc></url>",
    "<url><loc>" + "http://long/" * 400 + "</loc></url>",
    "<url><loc>http://" + "x" * 2_041 + "</loc></url>",
    "<url><loc>http://" + "x" * 2_042 + "</loc></url>",
    "<url><loc>{u}</loc><lastmod>" + "2" * 65 + "</lastmod></url>",
    "<url></url>",
    "<url/>",
    "<url><loc/><loc>{u}</loc></url>",
    "<url><loc></loc><lastmod>{d}</lastmod></url>",
    "<url ><loc>{u}</loc></url >",
    "<url a='b>c'><loc a='1'>{u}</loc\n></url\n>",
    "<url><loc>{u}</loc><image:image><image:loc>http://image/</image:loc></image:image></url>",
    "<url><image:loc>http://image/</image:loc><loc>{u}</loc></url>",
    "<url><xhtml:link rel='alternate' href='{u}'/><loc>{u}</loc></url>",
    "<sm:url><sm:loc>{u}</sm:loc><loc>http://bare/</loc><sm:lastmod>{d}</sm:lastmod></sm:url>",
    "<sm:url><loc>http://bare/</loc></sm:url>",
    "<image:url><loc>http://bare/</loc></image:url>",
    "<url><url><loc>http://nested/</loc></url><loc>{u}</loc></url>",
    "<url><loc>{u}<b>x</b></loc></url>",
    "<more><url><loc>http://deep/</loc></url></more>",
    "<more></more>",
    "<sitemap><loc>{u}</loc></sitemap>",
    "<!-- <url><loc>http://comment/</loc></url> -->",
    "<!-- </url> --><url><loc>{u}</loc></url>",
    "<url><!-- </url><url><loc>http://comment/</loc></url> --><loc>{u}</loc></url>",
    "<url><loc>{u}<!-- </loc></url> --></loc></url>",
    "<!-- <url> </url> \n-->\n<url><loc>{u}</loc></url><!--</url>-->",
    "<url><!-- " + " " * 9_000 + "<url><loc>http://comment/</loc></url>--><loc>{u}</loc></url>",
    "<url><loc>{u}</loc><changefreq>&gt;</changefreq></url>",
    "<url><loc>{u}</loc><priority>½</priority></url>",
    "<![CDATA[<url><loc>http://cdata/</loc></url>]]>",
    "<![CDATA[ </url>]]><url><loc>{u}</loc></url><![CDATA[<url><loc>http://cdata/</loc></url>]]>",
    "<?php <url><loc>http://instruction/</loc></url> ?>",
    "text <url><loc>{u}</loc></url> text",
    "]]&gt;<url><loc>{u}</loc></url>",
]
_MALFORMED = [
    "<url><loc>{u}?a=1&b=2</loc></url>",
    "<url><loc>{u}]]></loc></url>",
    "<url><loc>{u}</loc><changefreq>]]></changefreq></url>",
    "<url><loc>{u}</loc><priority>&</priority></url>",
    "<url><loc>{u}</loc><priority>\x01</priority></url>",
    "<url><loc>{u}\x0c</loc></url>",
    "<url>\x0b<loc>{u}</loc></url>",
    "<url><loc>{u}</loc><lastmod>&nbsp;</lastmod></url>",
    "<url a='</url>'><loc>{u}</loc></url>",
    "<url a='1' a='2'><loc>{u}</loc></url>",
    "<url><loc>{u}</url></loc>",
    "<URL><loc>{u}</loc></url>",
    "</url>",
    "<!-- -- </url> -->",
    "<!DOCTYPE urlset>",
    "<url><loc>{u}</loc></url",
    "< url><loc>{u}</loc></url>",
    "]]><url><loc>{u}</loc></url>",
    "<deep>" * 70 + "</deep>" * 70,
]


def make_document(seed: int) -> bytes:
    """Make one document: a header, blocks, a tail, and sometimes an injury."""
    chance = random.Random(seed)
    root = chance.choice(_ROOTS)
    padding = _PADDING if chance.random() < 0.7 else ""
    parts = [chance.choice(_HEADERS), padding, f"<{root}{chance.choice(_ATTRIBUTES)}>"]
    unusual = chance.choice([0.0, 0.1, 0.3, 0.9])
    parts += [_make_block(chance, number, unusual) for number in range(chance.randint(0, 25))]
    parts.append(chance.choice(_TAILS).format(root=root))
    return _injure("".join(parts).encode(), chance)


def _make_block(chance: random.Random, number: int, unusual: float) -> str:
    form = _make_extended(chance, unusual) if chance.random() < 0.4 else chance.choice(_WHOLE)
    if chance.random() < unusual:
        form = chance.choice(_MALFORMED if chance.random() < 0.06 else _ODD)
    timestamp = chance.choice(["2026-11-15", "2026-11-15T10:00:00+08:00", "yesterday"])
    return form.format(u=f"http://example.com/{number}", d=timestamp)


def _make_extended(chance: random.Random, unusual: float) -> str:
    """A block with extensions in any order, and references in its texts; strange ones now and then."""
    strange = unusual / 10

    def choose(usual: list[str], odd: list[str]) -> str:
        return chance.choice(odd if chance.random() < strange else usual)

    texts = ["".join(choose(_TEXTS, _STRANGE_TEXTS) for _ in range(chance.randint(0, 3))) for _ in range(4)]
    extras = [
        choose(_EXTRAS, _STRANGE_EXTRAS).replace("{t}", chance.choice(texts)) for _ in range(chance.randint(0, 4))
    ]
    return f"<url><loc>{texts[0]}{{u}}?{texts[1]}</loc>{''.join(extras)}</url>"


def _injure(document: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(document))
    match chance.randrange(12):
        case 0:
            return document[:place]
        case 1:
            return document[:place] + chance.choice([b"<", b">", b"&", b"\0", b"\xff", b"]]>"]) + document[place:]
        case 2:
            return document[:place] + document[place + chance.randint(1, 9) :]
    return document
