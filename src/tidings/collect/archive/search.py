"""Full-text search in any language: the words of a text, and a condition that finds them.

Chinese, Japanese and Korean have no spaces between words, so a sequence of their characters is indexed as pairs
(`喝咖啡` → `喝咖 咖啡 啡`; the last character also alone, for searches of one character). Letters and digits become
words in lower case. The same words go into SQLite's FTS5 and PostgreSQL's tsvector, so both find the same notes.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from sqlalchemy import ColumnElement, and_, exists, false, func, text

from tidings.collect.notes import Note
from tidings.collect.tables import TERMS_VECTOR, note_terms, sources
from tidings.core.db.database import Dialect

# Characters of a note that are indexed. A longer text would not fit into a tsvector (1 MB).
MOST_CHARACTERS: Final = 50_000
_LONGEST_WORD: Final = 64
_MOST_WORDS: Final = 32

_CJK: Final = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN: Final = re.compile(rf"(?P<cjk>[{_CJK}]+)|\d+|[^\W\d_{_CJK}]+")
_CHARACTER: Final = re.compile(f"[{_CJK}]")
_FIND: Final = {
    "sqlite": text("tbl_source.id IN (SELECT rowid FROM note_search WHERE note_search MATCH :search)"),
    "postgresql": text(
        f"tbl_source.id IN (SELECT source_id FROM note_terms WHERE {TERMS_VECTOR} @@ CAST(:search AS tsquery))"
    ),
}


def make_terms(note: Note) -> str:
    """The words of a note's title, author, tags and text, separated by spaces."""
    whole = "\n".join((note.title, note.author.name, *note.tags, note.text))
    return " ".join(term for run in _find_runs(whole) for term in _list_terms(run))


def match_text(wanted: str, *, dialect: Dialect) -> ColumnElement[bool]:
    """The condition on `tbl_source` that its note has every word of this text. A text without a word matches nothing.

    A word of several terms matches only where they follow each other.
    """
    words = _read_words(wanted)
    if not words:
        return false()
    query = _write_query([term for word in words for term in word], dialect=dialect)
    # The index does not know the order of terms. With LIKE, PostgreSQL would expect few rows and read every note that
    # has the terms.
    find_position = func.instr if dialect == "sqlite" else func.strpos
    sequences = [
        find_position(" " + note_terms.c.terms + " ", f" {' '.join(word)}{_end_sequence(word)}") > 0
        for word in words
        if len(word) > 1
    ]
    if not sequences:
        return and_(_FIND[dialect].bindparams(search=query))
    ordered = exists().where(note_terms.c.source_id == sources.c.id, *sequences)
    return and_(_FIND[dialect].bindparams(search=query), ordered)


def _end_sequence(word: list[str]) -> str:
    """A single character at the end is the beginning of a pair, as in `_write_query`."""
    return "" if _CHARACTER.fullmatch(word[-1]) else " "


def _write_query(terms: list[str], *, dialect: Dialect) -> str:
    """The query of FTS5, or of a tsquery. Terms have neither quotes nor blanks."""
    # A single character is the beginning of a pair.
    quote, prefix, both = ('"', "*", " AND ") if dialect == "sqlite" else ("'", ":*", " & ")
    unique = dict.fromkeys(terms)
    return both.join(f"{quote}{term}{quote}{prefix if _CHARACTER.fullmatch(term) else ''}" for term in unique)


def _read_words(wanted: str) -> list[list[str]]:
    """The words of a query. Each is the list of its terms, in order."""
    words = []
    for written in wanted.split()[:_MOST_WORDS]:
        runs = [list(_list_terms(run)) for run in _find_runs(written)]
        # In a note the sequence may continue after this word.
        if runs and len(runs[-1]) > 1:
            runs[-1].pop()
        if terms := [term for run in runs for term in run]:
            words.append(terms)
    return words


def _find_runs(whole: str) -> Iterator[re.Match[str]]:
    return _RUN.finditer(unicodedata.normalize("NFKC", whole).lower()[:MOST_CHARACTERS])


def _list_terms(run: re.Match[str]) -> Iterator[str]:
    characters = run[0]
    if run["cjk"]:
        yield from (characters[at : at + 2] for at in range(len(characters)))
    else:
        yield characters[:_LONGEST_WORD]
