"""The rules of IndexNow as engines apply them before they fetch the key file: what a request submits, and what is wrong
with it. Pure functions.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from tidings.sandbox.wire.faults import Fault

MOST_URLS = 10_000

_KEY = re.compile(r"[A-Za-z0-9-]{8,128}")
_UNFIT = re.compile(r"[\x00-\x20\x7f<>\"\\^`{|}]")
_LONGEST_URL = 2_048


def refuse_submission(status: int, message: str) -> Fault:
    """An error answer of an engine, as a fault."""
    return Fault(status=status, body=json.dumps({"errorCode": "InvalidRequestParameters", "message": message}))


@dataclass(frozen=True, slots=True)
class Submission:
    """The content of a request. Values of a JSON body may have any type."""

    urls: tuple[str, ...] = ()
    key: object = None
    key_location: object = None
    # None in a GET, where the host of the URL counts.
    host: object = None
    # Why the request could not be read.
    fault: Fault | None = None

    @property
    def fields(self) -> Mapping[str, object]:
        """The fields besides the URLs, by the names of the protocol."""
        said = {"host": self.host, "key": self.key, "keyLocation": self.key_location}
        return {name: value for name, value in said.items() if value is not None}


def read_query(query: str) -> Submission:
    """The submission of a GET, from its raw query string."""
    values = dict(parse_qsl(query, keep_blank_values=True))
    urls = (values["url"],) if "url" in values else ()
    return Submission(urls=urls, key=values.get("key"), key_location=values.get("keyLocation"))


def read_body(body: bytes, *, content_type: str) -> Submission:
    """The submission of a POST. An unreadable one has a `fault`."""
    if content_type != "application/json":
        return Submission(fault=refuse_submission(400, "the content type must be application/json"))
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return Submission(fault=refuse_submission(400, "the body is not JSON"))
    if not isinstance(document, dict):
        return Submission(fault=refuse_submission(400, "the body must be a JSON object"))
    listed = document.get("urlList")
    urls = tuple(url for url in listed if isinstance(url, str)) if isinstance(listed, list) else ()
    return Submission(
        urls=urls,
        key=document.get("key"),
        key_location=document.get("keyLocation"),
        host=document.get("host"),
        fault=_check_list(listed, len(urls)) or _check_named_host(document.get("host")),
    )


def _check_list(listed: object, texts: int) -> Fault | None:
    if not isinstance(listed, list):
        return refuse_submission(422, "urlList has to be an array")
    if texts < len(listed):
        return refuse_submission(400, "every URL has to be a string")
    if len(listed) > MOST_URLS:
        return refuse_submission(422, f"no more than {MOST_URLS} URLs allowed")
    return None


def _check_named_host(host: object) -> Fault | None:
    return None if isinstance(host, str) and host else refuse_submission(422, "no host provided")


def key_file_url(submission: Submission) -> str:
    """The URL of the key file, for a submission that `find_fault` accepts."""
    if isinstance(submission.key_location, str):
        return submission.key_location
    first = urlsplit(submission.urls[0])
    return f"{first.scheme}://{first.netloc}/{submission.key}.txt"


def find_fault(submission: Submission) -> Fault | None:
    """The first fault of a submission, or None."""
    if submission.fault is not None:
        return submission.fault
    if not submission.urls:
        return refuse_submission(422, "no URL provided")
    return _check_key(submission.key) or _check_urls(submission)


def _check_key(key: object) -> Fault | None:
    if key is None:
        return refuse_submission(422, "no key provided")
    if not isinstance(key, str):
        return refuse_submission(400, "the key has to be a string")
    if not _KEY.fullmatch(key):
        return refuse_submission(422, "the key must be 8 to 128 of A-Z, a-z, 0-9 and '-'")
    return None


def _check_urls(submission: Submission) -> Fault | None:
    first = split_url(submission.urls[0])
    if first is None:
        return refuse_submission(400, f"malformed URL: {submission.urls[0]}")
    host = submission.host if isinstance(submission.host, str) else first.netloc
    folder = _read_folder(submission.key_location, host)
    if isinstance(folder, Fault):
        return folder
    covered = (f"http://{host}{folder}", f"https://{host}{folder}")
    # Parsing each of 10,000 URLs would make the stand-in slower than its clients.
    doubtful = (url for url in submission.urls if not url.startswith(covered) or not _is_fit(url))
    refusals = (_check_url(url, host=host, folder=folder) for url in doubtful)
    return next((refusal for refusal in refusals if refusal is not None), None)


def _check_url(url: str, *, host: str, folder: str) -> Fault | None:
    split = split_url(url)
    if split is None:
        return refuse_submission(400, f"malformed URL: {url}")
    if split.netloc.lower() != host.lower():
        return refuse_submission(422, f"{url} does not belong to {host}")
    if not (split.path or "/").startswith(folder):
        return refuse_submission(422, f"{url} is outside {folder}, where the key is")
    return None


def _read_folder(location: object, host: str) -> str | Fault:
    """The folder that a key file covers."""
    if location is None:
        return "/"
    split = split_url(location) if isinstance(location, str) else None
    if split is None or split.netloc.lower() != host.lower():
        return refuse_submission(422, "keyLocation must be a URL of the host")
    return split.path.rpartition("/")[0] + "/"


def split_url(url: str) -> SplitResult | None:
    """The parts of an http(s) URL. None for anything else."""
    if not _is_fit(url):
        return None
    try:
        split = urlsplit(url)
        fit = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        return None
    return split if fit else None


def _is_fit(url: str) -> bool:
    return len(url) <= _LONGEST_URL and _UNFIT.search(url) is None
