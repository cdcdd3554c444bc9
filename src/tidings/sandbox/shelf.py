"""Rendered files, each rendered once for each change and kept while there is room. Their ETags are kept for good
(they are small), so that a conditional request never has to render anything twice."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime

from tidings.sandbox.documents import Document


def digest_body(body: bytes) -> str:
    """A strong ETag, quotes included."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


class Shelf:
    """Bytes of documents, the longest unused thrown out first once `capacity` bytes are exceeded."""

    def __init__(self, *, capacity: int, render: Callable[[Document], bytes]) -> None:
        self._capacity = capacity
        self._render = render
        self._bodies: OrderedDict[str, tuple[datetime, bytes]] = OrderedDict()
        self._etags: dict[str, tuple[datetime, str]] = {}
        self.size = 0

    def etag(self, document: Document) -> str:
        known = self._etags.get(document.path)
        if known is None or known[0] != document.modified:
            self.body(document)
        return self._etags[document.path][1]

    def body(self, document: Document) -> bytes:
        kept = self._bodies.get(document.path)
        if kept is not None and kept[0] == document.modified:
            self._bodies.move_to_end(document.path)
            return kept[1]
        body = self._render(document)
        self._etags[document.path] = (document.modified, digest_body(body))
        self._keep(document, body)
        return body

    def _keep(self, document: Document, body: bytes) -> None:
        _, previous = self._bodies.pop(document.path, (None, b""))
        self.size += len(body) - len(previous)
        self._bodies[document.path] = (document.modified, body)
        while self.size > self._capacity:
            _, (_, dropped) = self._bodies.popitem(last=False)
            self.size -= len(dropped)
