"""Collections of 64-bit URL hashes that stay small for sites of a million pages."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from os import SEEK_END
from tempfile import TemporaryFile
from typing import IO

_BUCKET_BITS = 12


class HashSet:
    """A set of signed 64-bit numbers in about 9 bytes each; Python's own takes 60 to 100.

    Each bucket holds the numbers that share their top bits, in order.
    """

    def __init__(self) -> None:
        self._buckets: list[array[int] | None] = [None] * (1 << _BUCKET_BITS)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int) or not self._size:
            return False
        # A negative number has a negative index, which counts from the end, so every prefix has a bucket of its own.
        bucket = self._buckets[number >> (64 - _BUCKET_BITS)]
        if bucket is None:
            return False
        at = bisect_left(bucket, number)
        return at < len(bucket) and bucket[at] == number

    def __iter__(self) -> Iterator[int]:
        for bucket in self._buckets:
            yield from bucket or ()

    def add(self, number: int) -> bool:
        """Add a number. False: it was there already."""
        return bool(self.add_new((number,)))

    def add_new(self, numbers: Iterable[int]) -> list[int]:
        """Add numbers. Returns those that were not there."""
        buckets, added = self._buckets, []
        for number in numbers:
            prefix = number >> (64 - _BUCKET_BITS)
            bucket = buckets[prefix]
            if bucket is None:
                buckets[prefix] = array("q", (number,))
            else:
                at = bisect_left(bucket, number)
                if at < len(bucket) and bucket[at] == number:
                    continue
                bucket.insert(at, number)
            added.append(number)
        self._size += len(added)
        return added

    def update(self, numbers: Iterable[int]) -> None:
        self.add_new(numbers)

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove those that are there."""
        for number in numbers:
            bucket = self._buckets[number >> (64 - _BUCKET_BITS)]
            if bucket is not None and number in self:
                bucket.pop(bisect_left(bucket, number))
                self._size -= 1


class DistinctCount:
    """Counts different hashes exactly, in memory that does not grow with their number.

    It writes them to a temporary file, in buckets by their top bits, and counts bucket by bucket.
    """

    _BUCKETS = 64

    def __init__(self) -> None:
        self._file: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed by `close`
        # For each block that was added, its place in the file, and where its part of each bucket begins and ends.
        self._blocks: list[tuple[int, array[int]]] = []

    def add(self, ordered: "array[int]") -> None:
        """Add hashes, which must be in order."""
        width = (1 << 64) // self._BUCKETS
        bounds = (bisect_left(ordered, number * width - (1 << 63)) for number in range(self._BUCKETS + 1))
        self._blocks.append((self._file.seek(0, SEEK_END), array("q", bounds)))
        ordered.tofile(self._file)

    def count(self) -> int:
        return sum(len(set(bucket)) for bucket in self._read_buckets())

    def close(self) -> None:
        self._file.close()

    def _read_buckets(self) -> Iterator["array[int]"]:
        for number in range(self._BUCKETS):
            bucket = array("q")
            for offset, bounds in self._blocks:
                start, stop = bounds[number : number + 2]
                self._file.seek(offset + start * bucket.itemsize)
                bucket.fromfile(self._file, stop - start)
            yield bucket
