"""How the outbox stores pages: packed into one value, and bitmaps of positions in it."""

import sys
import zlib
from array import array
from collections.abc import Sequence

from tidings.announce.due.pages import PageKeys, Pages


def encode_pages(pages: Pages) -> bytes:
    """Pages as one value: hashes, then lastmods, 8 bytes each, then the URLs, compressed. Each can be read alone."""
    return _write_numbers(pages.hashes) + _write_numbers(pages.lastmods) + zlib.compress(b"\n".join(pages.urls), 1)


def decode_pages(value: bytes, *, size: int, removed: bool = False) -> Pages:
    """The inverse of `encode_pages`."""
    keys = unpack_keys(value, size=size)
    return Pages(unpack_urls(value, size=size), keys.hashes, keys.lastmods, removed)


def unpack_keys(value: bytes, *, size: int) -> PageKeys:
    """Hashes and lastmods alone."""
    return PageKeys(read_numbers(value[: 8 * size]), read_numbers(value[8 * size : 16 * size]))


def unpack_urls(value: bytes, *, size: int) -> list[bytes]:
    """The URLs alone."""
    return zlib.decompress(value[16 * size :]).split(b"\n")


def _write_numbers(numbers: "array[int]") -> bytes:
    """Little-endian, so that a backup can move to any machine."""
    if sys.byteorder == "big":
        numbers = array("q", numbers)
        numbers.byteswap()
    return numbers.tobytes()


def read_numbers(value: bytes) -> "array[int]":
    numbers = array("q", value)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def read_bits(value: bytes) -> int:
    return int.from_bytes(value, "little")


def write_bits(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def make_bits(positions: Sequence[int]) -> int:
    """The bitmap of these positions, which are in order."""
    if not positions:
        return 0
    first, last = positions[0], positions[-1]
    if last - first + 1 == len(positions):
        return ((1 << len(positions)) - 1) << first
    digits = bytearray(b"0") * (last + 1)
    for at in positions:
        digits[last - at] = ord("1")
    return int(digits, 2)


def list_positions(bits: int, size: int) -> Sequence[int]:
    """The positions of a bitmap over `size` pages, in order."""
    if bits.bit_count() == size:
        return range(size)
    return [at for at, digit in enumerate(reversed(f"{bits:b}")) if digit == "1"]
