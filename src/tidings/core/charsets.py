"""The charsets that foreign text may declare. An allow-list, because Python also has codecs that decompress (zlib),
take minutes for a few kilobytes (punycode, idna), or are not charsets.
"""

import codecs
from typing import Final

UTF_8: Final = "utf-8"

_ALLOWED: Final = frozenset(
    [f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17))]
    + [f"cp{page}" for page in (437, 850, 852, 855, 866, 874, 932, 949, 950, *range(1250, 1259))]
    + ["big5", "big5hkscs", "gb18030", "euc_jp", "euc_jis_2004", "iso2022_jp", "johab"]
    + ["koi8-r", "koi8-u", "mac-cyrillic", "mac-roman", "tis-620"]
    + [UTF_8, "ascii", "utf-16", "utf-16-le", "utf-16-be"]
)
# Text that declares the smaller charset is often written in the larger one, which contains it.
_WIDER: Final = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"}


def find_charset(label: str) -> str | None:
    """Python's name of a declared charset, or of a wider one that contains it; None if it is not on the list."""
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    name = _WIDER.get(name, name)
    return name if name in _ALLOWED else None


def guess_utf16(head: bytes) -> str | None:
    """Python's name of the UTF-16 form that this text begins in, by byte order mark or zero bytes; else None."""
    if head.startswith(codecs.BOM_UTF16_LE) or (len(head) > 1 and head[0] and not head[1]):
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE) or (len(head) > 1 and head[1] and not head[0]):
        return "utf-16-be"
    return None


def decode_text(body: bytes, *labels: str) -> str:
    """Decode by the first charset that fits: UTF-16 by its bytes, the declared ones in order, UTF-8, Windows-1252.

    Labels that are not on the list do not count. A byte order mark is removed.
    """
    named = (guess_utf16(body), *(find_charset(label) for label in labels), UTF_8)
    for name in dict.fromkeys(filter(None, named)):
        try:
            return body.decode(name).removeprefix("\ufeff")
        except UnicodeError:
            continue
    return body.decode("cp1252", "replace")
