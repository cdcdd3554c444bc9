"""One backoff rule for all: growing waits, the last of which repeats."""

from datetime import timedelta

from tidings.core.backoff import Backoff

SECOND = timedelta(seconds=1)


def test_waits_grow_and_the_last_one_repeats_until_the_retries_are_used_up() -> None:
    """A21, C15: the wait before each retry, then None."""
    backoff = Backoff([5 * SECOND, 15 * SECOND], most_retries=3)
    assert [backoff.next_delay(retry) for retry in range(1, 5)] == [5 * SECOND, 15 * SECOND, 15 * SECOND, None]


def test_without_a_limit_it_never_gives_up_and_without_waits_it_never_waits() -> None:
    """C15: retries without a wait follow at once."""
    assert Backoff([]).next_delay(1_000) == timedelta(0)


def test_a_longer_wait_that_the_other_side_asks_for_counts() -> None:
    """A21: Retry-After; a shorter one does not shorten the rule's own wait."""
    backoff = Backoff([5 * SECOND])
    assert [backoff.next_delay(1, at_least=asked * SECOND) for asked in (1, 60)] == [5 * SECOND, 60 * SECOND]
