"""Asks a platform who is logged in with a cookie, and until when. It touches no note and counts as no use."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tidings.collect.crawl.envelope import ErrorInfo, make_error
from tidings.collect.crawl.platforms.client import session_user_agent
from tidings.collect.crawl.platforms.protocol import ChecksSessions, Platform, SessionInfo
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

_UNTELLING: Final = "this platform has no way to check a session"


@dataclass(frozen=True, slots=True, kw_only=True)
class CookieCheck:
    """What the platform says about a cookie."""

    # The cookie's name.
    name: str
    platform: str
    # None if the platform did not answer.
    session: SessionInfo | None = None
    # Why it did not.
    error: ErrorInfo | None = None

    @property
    def is_usable(self) -> bool:
        return self.session is not None and self.session.is_logged_in


async def check_session(
    name: str,
    platform: Platform,
    secret: Secret,
    *,
    user_agent: str | None,
    limit: timedelta,
    redactor: Redactor,
) -> CookieCheck:
    """Check one cookie. Raises nothing that the platform does."""
    if not isinstance(platform, ChecksSessions):
        error = make_error(ErrorCode.INVALID_INPUT, f"{platform.name}: {_UNTELLING}")
        return CookieCheck(name=name, platform=platform.name, error=error)
    token = session_user_agent.set(user_agent)
    try:
        async with asyncio.timeout(limit.total_seconds()):
            session = await platform.check_session(secret)
        return CookieCheck(name=name, platform=platform.name, session=session)
    except CrawlError as error:
        if error.blames_cookie and not error.captcha:
            return CookieCheck(name=name, platform=platform.name, session=SessionInfo(is_logged_in=False))
        found = make_error(error.code, redactor.redact(error.message), captcha=error.captcha, blocked=error.blocked)
    except TimeoutError:
        found = make_error(ErrorCode.TIMEOUT_ERROR, f"{platform.name}: the time was up before there was an answer")
    finally:
        session_user_agent.reset(token)
    return CookieCheck(name=name, platform=platform.name, error=found)
