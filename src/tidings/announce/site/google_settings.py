"""Settings of Google: a service account, the property in Search Console, and whether the Indexing API may be used.

With credentials, changed sitemaps are submitted through Search Console. The Indexing API is a channel with a daily
quota beside that. Google allows it for pages with job postings or live streams alone, so a site has to declare them.
"""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from tidings.announce.site.channel_settings import RankedFields, RankedSettings
from tidings.announce.site.errors import SiteError, check_unmasked
from tidings.core.net.addresses import UrlError, parse_url
from tidings.core.secrets.secret import Secret

GOOGLE_FIELDS = RankedFields(
    "google",
    "googleCredentials",
    "google_credentials",
    default_quota=200,
    # Google grants more than 200 on request.
    most_quota=100_000,
    switch="googleIndexing",
)

_DOMAIN = re.compile(r"sc-domain:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_LONGEST = 16_384


class IndexedContent(StrEnum):
    """The only pages for which Google allows its Indexing API."""

    JOB_POSTING = "jobPosting"
    # A BroadcastEvent in a VideoObject.
    LIVE_STREAM = "liveStream"


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """What a service account signs in with."""

    email: str
    # An RSA key in PEM.
    private_key: Secret
    # Where a signed claim is exchanged for an access token.
    token_uri: str
    # The Cloud project that it belongs to. Google counts the Indexing API's quota by it.
    project: str


@dataclass(frozen=True, slots=True)
class GoogleSettings(RankedSettings):
    """Whether and how a site is announced to Google. The day of the Indexing API's quota is that of California.

    `key` is the service account as JSON. `enabled` means the Indexing API; sitemaps need the key alone.
    """

    fields = GOOGLE_FIELDS

    # The site's property in Search Console: https://example.com/ or sc-domain:example.com; None: the sitemap's origin.
    console_property: str | None = None
    # What the pages are, as the site declares it; None keeps the Indexing API off.
    content: IndexedContent | None = None

    @property
    def identity(self) -> str:
        # A refusal may also concern the property.
        return "" if self.key is None else f"{self.key.fingerprint} {self.console_property or ''}".strip()

    @property
    def account(self) -> ServiceAccount:
        """The service account. Raises SiteError where there is none."""
        return parse_account(self.require_key().reveal())

    @property
    def secrets(self) -> tuple[Secret, ...]:
        return () if self.key is None else (self.key, self.account.private_key)

    @property
    def quota_project(self) -> str | None:
        # Google counts by Cloud project.
        return None if self.key is None else self.account.project

    def describe(self) -> dict[str, Any]:
        content = None if self.content is None else self.content.value
        return {**RankedSettings.describe(self), "googleIndexing": content, "googleProperty": self.console_property}

    @classmethod
    def check_key(cls, key: str) -> Secret:
        check_unmasked(cls.fields.key, key)
        return Secret(normalise_account(key))

    @classmethod
    def read_others(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {
            "console_property": check_property(given["googleProperty"]) if given.get("googleProperty") else None,
            "content": check_content(given["googleIndexing"]) if given.get("googleIndexing") else None,
        }


def check_content(value: str) -> IndexedContent:
    """The content that the pages have. Raises SiteError."""
    try:
        return IndexedContent(value)
    except ValueError:
        raise SiteError("googleIndexing", f"it must be one of {', '.join(IndexedContent)}") from None


def check_property(text: str) -> str:
    """A property as Search Console names it. Raises SiteError."""
    text = text.strip()
    if _DOMAIN.fullmatch(text):
        return text
    wanted = "it must be https://www.example.com/ or sc-domain:example.com"
    try:
        url = parse_url(text)
    except UrlError as error:
        raise SiteError("googleProperty", f"{error}; {wanted}") from None
    if url.query:
        raise SiteError("googleProperty", wanted)
    # The slash at its end is part of the name.
    return url.text if urlsplit(url.text).path.endswith("/") else f"{url.text}/"


def normalise_account(text: str) -> str:
    """The parts of a service account's JSON that are used, as JSON. Raises SiteError, which repeats nothing of it."""
    account = parse_account(text)
    return json.dumps(
        {
            "client_email": account.email,
            "private_key": account.private_key.reveal(),
            "token_uri": account.token_uri,
            "project_id": account.project,
        }
    )


# Cached, because each execution and each page of the dashboard reads the site.
@lru_cache(maxsize=64)
def parse_account(text: str) -> ServiceAccount:
    """A service account from the JSON that Google hands out. Raises SiteError, which repeats nothing of it."""
    field = GOOGLE_FIELDS.key
    wanted = "it must be the JSON of a service account, with client_email, private_key and token_uri"
    try:
        document = json.loads(text) if len(text) <= _LONGEST else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise SiteError(field, wanted)
    email, key, uri = (document.get(name) for name in ("client_email", "private_key", "token_uri"))
    if not (isinstance(email, str) and isinstance(key, str) and isinstance(uri, str)):
        raise SiteError(field, wanted)
    if "@" not in email or not email.isprintable() or "-----BEGIN" not in key:
        raise SiteError(field, wanted)
    try:
        address = parse_url(uri)
    except UrlError:
        raise SiteError(field, "its token_uri is not a URL") from None
    return ServiceAccount(email, Secret(key), address.text, _find_project(document.get("project_id"), email))


def _find_project(project: object, email: str) -> str:
    """The Cloud project of a service account, by its JSON or else by its address; the address itself if neither says.

    Addresses are NAME@PROJECT.iam.gserviceaccount.com, but for those that Google's own products make.
    """
    if isinstance(project, str) and project.isprintable() and project.strip():
        return project.strip()
    found = re.fullmatch(r"[^@]+@([a-z0-9.:-]+)\.iam\.gserviceaccount\.com", email)
    return email if found is None else found[1]
