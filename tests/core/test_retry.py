"""When to try again: the table of the specification, and the forms of Retry-After."""

from datetime import UTC, datetime, timedelta

import pytest

from tidings.core.net.retry import RetryPolicy, Trouble, parse_retry_after

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
MOST_ATTEMPTS = 50


def list_waits(policy: RetryPolicy, trouble: Trouble, asked_for: timedelta | None = None) -> list[float]:
    """The waits, in seconds, of an attempt that never succeeds."""
    waits: list[float] = []
    for retry in range(1, MOST_ATTEMPTS):
        delay = policy.next_delay(trouble, retry=retry, asked_for=asked_for)
        if delay is None:
            return waits
        waits.append(delay.total_seconds())
    raise AssertionError("it never gives up")


@pytest.mark.parametrize(
    ("trouble", "waits"),
    [
        (Trouble.RATE_LIMITED, [60, 60, 60]),
        (Trouble.UNAVAILABLE, [1, 2, 4]),
        (Trouble.NOT_FETCHED, [2, 2, 2]),
    ],
)
def test_each_trouble_has_its_waits_and_then_it_is_given_up(trouble: Trouble, waits: list[float]) -> None:
    """A21, A6: 429 60 s; 5xx and network errors 1, 2, 4 s; a fetch 2 s. 3 retries are 4 attempts, no more."""
    assert list_waits(RetryPolicy(), trouble) == waits


@pytest.mark.parametrize("trouble", Trouble)
@pytest.mark.parametrize("retries", [0, 1, 3, 9])
def test_the_number_of_retries_is_the_one_that_was_set(trouble: Trouble, retries: int) -> None:
    """A1, A21: MAX_RETRIES; none at all means one attempt, and many never wait less than before."""
    waits = list_waits(RetryPolicy(retries=retries), trouble)
    assert len(waits) == retries
    assert waits == sorted(waits)


@pytest.mark.parametrize("seconds", [0, 5, 3_600])
def test_what_a_rate_limit_asks_for_goes_before_the_rule(seconds: int) -> None:
    """A21: 60 s (or Retry-After), shorter or longer; still only 3 retries."""
    assert list_waits(RetryPolicy(), Trouble.RATE_LIMITED, timedelta(seconds=seconds)) == [seconds] * 3


@pytest.mark.parametrize("trouble", [Trouble.UNAVAILABLE, Trouble.NOT_FETCHED])
def test_other_troubles_keep_their_own_waits_whatever_is_asked_for(trouble: Trouble) -> None:
    """A6, A21: only a 429 may say how long to wait."""
    assert list_waits(RetryPolicy(), trouble, timedelta(hours=1)) == list_waits(RetryPolicy(), trouble)


def test_scale_multiplies_every_wait() -> None:
    """A21: a rehearsal keeps the proportions."""
    policy = RetryPolicy(scale=0.5)
    assert list_waits(policy, Trouble.UNAVAILABLE) == [0.5, 1, 2]
    assert list_waits(policy, Trouble.RATE_LIMITED) == [30, 30, 30]
    assert list_waits(policy, Trouble.RATE_LIMITED, timedelta(seconds=10)) == [5, 5, 5]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 7 ", 7),
        ("Sun, 15 Nov 2026 12:01:00 GMT", 60),
        ("Sun, 15 Nov 2026 14:01:00 +0200", 60),
        ("Sunday, 15-Nov-26 12:01:00 GMT", 60),
        ("Sun Nov 15 12:01:00 2026", 60),
    ],
)
def test_retry_after_is_read_as_seconds_and_as_a_date(value: str, seconds: int) -> None:
    """A21: both forms that HTTP allows, and the old spellings of a date."""
    assert parse_retry_after(value, now=NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        " ",
        "soon",
        "-5",
        "1.5",
        "1e3",
        "٣",
        "Sun, 15 Nov 2026 12:00:00 GMT",
        "Sun, 15 Nov 2026 11:59:00 GMT",
        "Sun, 32 Nov 2026 12:01:00 GMT",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2035 00:00:00 +999999999999999999",
    ],
)
def test_a_retry_after_that_is_missing_wrong_or_past_counts_as_none(value: str | None) -> None:
    """A21: the rule's own wait holds then; no matter what a server sends, nothing is raised."""
    assert parse_retry_after(value, now=NOW) is None


def test_an_absurdly_long_retry_after_is_still_a_duration() -> None:
    """A21: digits without end do not break the arithmetic; the time budget ends the wait."""
    asked_for = parse_retry_after("9" * 5_000, now=NOW)
    assert asked_for is not None
    assert RetryPolicy().next_delay(Trouble.RATE_LIMITED, retry=1, asked_for=asked_for) == asked_for
