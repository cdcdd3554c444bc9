"""What an answer of Google's APIs means. All of them have the same form of errors."""

from datetime import datetime
from typing import Any

from tidings.announce.channels.answer import Outcome, Verdict, clean_detail, make_outcome
from tidings.announce.channels.quota.api import make_advice, read_document
from tidings.core.net.client import Answer

ADVICE = make_advice("Google", midnight="Pacific time", setting="GOOGLE_API_BASE") | {
    Verdict.BAD_URLS: "Check that the URL belongs to the property in Search Console.",
    Verdict.FORBIDDEN: "Make the service account an owner of the property in Search Console, and enable the API.",
}

CHECK_CREDENTIALS = "Check googleCredentials, and that this machine's clock is right."

# Reasons of a 403 that concern the rate of requests, not the account.
_TOO_OFTEN = {
    "quotaexceeded": Verdict.QUOTA_FULL,
    "dailylimitexceeded": Verdict.QUOTA_FULL,
    "ratelimitexceeded": Verdict.RATE_LIMITED,
    "userratelimitexceeded": Verdict.RATE_LIMITED,
}


def judge_google(answer: Answer, *, now: datetime) -> Outcome:
    """Classify an answer."""
    if 200 <= answer.status < 300:
        return Outcome(Verdict.ACCEPTED, f"HTTP {answer.status}", status=answer.status, elapsed=answer.elapsed)
    error = (read_document(answer.body) or {}).get("error")
    code, message = None, None
    if isinstance(error, dict):
        code, message = _find_code(error), _clean(error.get("message"))
    else:
        message = _clean(answer.body.decode(errors="replace"))
    verdict = _classify(answer.status, code=code, message=message, is_google=isinstance(error, dict))
    return make_outcome(answer, verdict, message, advice=ADVICE[verdict], now=now, code=code, message=message)


def _find_code(error: dict[str, Any]) -> str | None:
    """The reason of the first error, or else the status, such as PERMISSION_DENIED."""
    listed = error.get("errors")
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    return _clean(first.get("reason")) or _clean(error.get("status"))


def _clean(value: object) -> str | None:
    return clean_detail(value) or None if isinstance(value, str) else None


def _classify(status: int, *, code: str | None, message: str | None, is_google: bool) -> Verdict:
    if status >= 500:
        return Verdict.UNAVAILABLE
    if status == 429:
        # Google counts by the minute and by the day.
        is_daily = "per day" in (message or "").lower() or (code or "").lower() == "dailylimitexceeded"
        return Verdict.QUOTA_FULL if is_daily else Verdict.RATE_LIMITED
    # A proxy's page may have any status, so only an answer in Google's form counts.
    if not is_google:
        return Verdict.REFUSED
    if status == 403:
        return _TOO_OFTEN.get((code or "").lower(), Verdict.FORBIDDEN)
    if status == 401:
        return Verdict.FORBIDDEN
    return Verdict.BAD_URLS if status == 400 else Verdict.REFUSED
