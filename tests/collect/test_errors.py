"""The table of error codes."""

from datetime import timedelta

import pytest

from tidings.collect.errors import BACKOFF, RULES, Action, CrawlError, ErrorCode, next_delay


@pytest.mark.parametrize(
    ("code", "retryable", "action", "most_retries", "alerts"),
    [
        (ErrorCode.COOKIE_EXHAUSTED, False, Action.PAUSE, 0, True),
        (ErrorCode.COOKIE_INVALID, True, Action.SWITCH_COOKIE, 3, False),
        (ErrorCode.PLATFORM_ERROR, True, Action.RETRY, 2, False),
        (ErrorCode.TIMEOUT_ERROR, True, Action.RETRY, 2, False),
        (ErrorCode.NETWORK_ERROR, True, Action.RETRY, 3, False),
        (ErrorCode.PARTIAL_FAIL, True, Action.RETRY_FAILED_ITEMS, 2, False),
        (ErrorCode.INVALID_INPUT, False, Action.SKIP, 0, True),
    ],
)
def test_each_code_has_the_rule_of_the_table(
    code: ErrorCode, *, retryable: bool, action: Action, most_retries: int, alerts: bool
) -> None:
    """C15: retryable, the workflow's action and its most retries."""
    rule = RULES[code]
    assert (rule.retryable, rule.action, rule.most_retries, rule.alerts) == (retryable, action, most_retries, alerts)
    assert CrawlError(code, "why").retryable is retryable


def test_every_code_has_a_rule_and_those_of_the_api_itself_are_never_retried() -> None:
    """C13, C15: seven codes of the workflow and four of the API."""
    assert set(RULES) == set(ErrorCode)
    own = (ErrorCode.UNAUTHORIZED, ErrorCode.NOT_FOUND, ErrorCode.INTERNAL_ERROR, ErrorCode.LOCK_LOST)
    assert not any(RULES[code].retryable for code in own)


def test_whoever_lost_the_lock_stops_and_nobody_is_reported() -> None:
    """C5: another goes on in its place, so there is nothing for a person to do."""
    rule = RULES[ErrorCode.LOCK_LOST]
    assert (rule.action, rule.alerts, next_delay(ErrorCode.LOCK_LOST, retry=1)) == (Action.STOP, False, None)


def test_only_a_broken_network_is_waited_for_longer_each_time_and_then_given_up() -> None:
    """C15, C26: backoff 5 s, 15 s, 45 s, which can be set."""
    waits = [next_delay(ErrorCode.NETWORK_ERROR, retry=retry) for retry in (1, 2, 3, 4)]
    assert waits == [*(timedelta(seconds=seconds) for seconds in (5, 15, 45)), None]
    assert list(BACKOFF) == waits[:3]
    assert next_delay(ErrorCode.PLATFORM_ERROR, retry=2) == timedelta(0)
    assert next_delay(ErrorCode.PLATFORM_ERROR, retry=3) is None
    assert next_delay(ErrorCode.INVALID_INPUT, retry=1) is None
    assert next_delay(ErrorCode.NETWORK_ERROR, retry=3, backoff=[timedelta(seconds=1)]) == timedelta(seconds=1)
    assert next_delay(ErrorCode.NETWORK_ERROR, retry=1, backoff=()) == timedelta(0)


def test_an_error_says_its_code_and_its_message() -> None:
    """C13: code and message travel apart, a log line has both."""
    error = CrawlError(ErrorCode.COOKIE_INVALID, "log in again")
    assert (error.code, error.message, error.blames_cookie) == ("COOKIE_INVALID", "log in again", True)
    assert str(error) == "COOKIE_INVALID: log in again"
    assert not CrawlError(ErrorCode.PLATFORM_ERROR, "down").blames_cookie


def test_a_captcha_is_always_about_the_cookie() -> None:
    """C17: whoever says captcha need not say twice whom it is for."""
    asked = CrawlError(ErrorCode.COOKIE_INVALID, "solve it", captcha=True)
    assert (asked.captcha, asked.blames_cookie) == (True, True)
    assert not CrawlError(ErrorCode.COOKIE_INVALID, "log in again").captcha
