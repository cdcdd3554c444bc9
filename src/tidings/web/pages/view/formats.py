"""Numbers, times, durations and names as people read them, in English and Chinese, in the viewer's time zone."""

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from tidings.core.alerts.translation import Translator
from tidings.core.clock import to_text
from tidings.web.pages.view.texts import PageLanguage, Texts

UNKNOWN = "–"

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY = timedelta(days=1)
# A word, not a host or a URL.
_BEGINNING = re.compile(r"^[a-z]+(?= )")
_CODE = re.compile("`([^`]+)`")
_JSON_MESSAGE = re.compile(r'\{[^{}]*"[Mm]essage"\s*:\s*"((?:[^"\\]|\\.)*)(?:"[^{}]*\}|$)')


def unwrap_json(text: str) -> str:
    """The text with a JSON object replaced by its `message`, also where the end of the object was cut off."""
    return _JSON_MESSAGE.sub(lambda found: found[1].replace('\\"', '"'), text)


def find_zone(name: str | None) -> tzinfo:
    """The time zone of this name; UTC when there is none."""
    if not name or len(name) > 64:
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return UTC


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats for one page: its language, the viewer's zone and the time at which the page is made."""

    texts: Texts
    zone: tzinfo
    now: datetime
    # Chinese for reasons and advice that Tidings itself wrote.
    translator: Translator = field(default_factory=Translator)

    @property
    def is_chinese(self) -> bool:
        return self.texts.language is PageLanguage.CHINESE

    @property
    def zone_name(self) -> str:
        """The zone as the page names it."""
        return "UTC" if self.zone is UTC else str(self.zone)

    def say(self, *texts: str | None) -> str:
        """Reasons and advice in the page's language, as sentences. Of an engine's own words, a JSON object is left out
        but for its message."""
        said = [unwrap_json(self.translator.translate(text) if self.is_chinese else text) for text in texts if text]
        stop = "。" if self.is_chinese else ". "
        return "".join(
            text if at == len(said) else f"{text.rstrip('.。')}{stop}" for at, text in enumerate(said, start=1)
        )

    def explain(self, *texts: str | None) -> str:
        """As `say`, for Tidings' own texts: the first word begins with a capital."""
        return self.begin(self.say(*texts))

    def begin(self, text: str) -> str:
        """The text as a sentence: its first word begins with a capital."""
        return _BEGINNING.sub(lambda found: found[0].capitalize(), text)

    def code(self, text: str) -> Markup:
        """The text with what stands between backticks as code: commands that Tidings advises."""
        return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped just before

    def place(self, key: str, **elements: Markup) -> Markup:
        """The text of this key with elements, such as times, in its fields."""
        return escape(self.texts(key)).format(**elements)

    def platform(self, name: str) -> str:
        """The platform's common name; a platform of a package keeps its own name."""
        return self.texts.find(f"platform.{name}", name)

    def crawl_error(self, code: str | None) -> str:
        """What this error code of collect means; empty without one."""
        return self.texts.find(f"collect_error.{code}", code or "")

    def host(self, url: str) -> str:
        """The host of an engine's URL."""
        return urlsplit(url).netloc or url

    def link_text(self, url: str) -> Markup:
        """A URL that wraps after its host."""
        parts = urlsplit(url)
        head = f"{parts.scheme}://{parts.netloc}"
        return Markup("{}<wbr>{}").format(head, url.removeprefix(head))

    def number(self, value: int | None) -> str:
        return UNKNOWN if value is None else f"{value:,}"

    def compact(self, value: int | None) -> Markup:
        """A platform's count: short from 10,000 on, with the exact number as the title."""
        if value is None:
            return escape(UNKNOWN)
        if value < 10_000:
            return escape(f"{value:,}")
        if self.is_chinese:
            short = f"{value / 100_000_000:.1f}亿" if value >= 100_000_000 else f"{value / 10_000:.1f}万"
        else:
            short = f"{value / 1_000_000:.1f}M" if value >= 1_000_000 else f"{round(value / 1_000)}K"
        return Markup('<span title="{:,}">{}</span>').format(value, short)

    def percent(self, share: float | None) -> str:
        return UNKNOWN if share is None else f"{share * 100:.1f}%"

    def date(self, day: date) -> str:
        """A day; with its year if that is not the present one."""
        this_year = day.year == self.now.astimezone(self.zone).year
        if self.is_chinese:
            return f"{day.month}月{day.day}日" if this_year else f"{day.year}年{day.month}月{day.day}日"
        return f"{day.day} {_MONTHS[day.month - 1]}" + ("" if this_year else f" {day.year}")

    def clock_time(self, at: datetime) -> str:
        """The time of day, with the day where it is another one."""
        local, today = at.astimezone(self.zone), self.now.astimezone(self.zone).date()
        if local.date() == today:
            return f"{local:%H:%M}"
        if local.year != today.year:
            return self.date(local.date())
        return f"{self.date(local.date())} {local:%H:%M}"

    def utc_time(self, at: datetime) -> str:
        """A time in UTC with its year, for forms that use UTC."""
        utc = at.astimezone(UTC)
        if self.is_chinese:
            return f"{utc.year}年{utc.month}月{utc.day}日 {utc:%H:%M}（UTC）"
        return f"{utc.day} {_MONTHS[utc.month - 1]} {utc.year} {utc:%H:%M} UTC"

    def time(self, at: datetime | None) -> Markup:
        """A time as an element that shows UTC on hover."""
        return escape(UNKNOWN) if at is None else self._mark(at, self.clock_time(at))

    def relative(self, at: datetime | None) -> Markup:
        """How long ago, or in how long; a date from seven days on."""
        if at is None:
            return escape(UNKNOWN)
        distance = at - self.now
        if abs(distance) >= 7 * _DAY:
            return self._mark(at, self.clock_time(at))
        if abs(distance) < timedelta(minutes=1):
            return self._mark(at, self.texts("time.now" if distance > timedelta(0) else "time.just_now"))
        key = "time.in" if distance > timedelta(0) else "time.ago"
        return self._mark(at, self.texts(key, span=self.span(abs(distance))))

    def ago(self, at: datetime | None) -> Markup:
        """As `relative`, for what has happened: the clock of another machine may be a little ahead."""
        return self.relative(None if at is None else min(at, self.now))

    def age(self, since: datetime) -> str:
        """A rough duration until now."""
        return self.span(max(self.now - since, timedelta(0)))

    def lasting(self, since: datetime) -> Markup:
        """For how long something has lasted."""
        return self._mark(since, self.texts("time.lasting", span=self.age(since)))

    def span(self, duration: timedelta) -> str:
        """A rough duration in its largest unit."""
        seconds = int(duration.total_seconds())
        for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
            if seconds >= size:
                return self.texts.count(f"span.{unit}", seconds // size)
        return self.texts.count("span.seconds", seconds)

    def duration(self, duration: timedelta | None) -> str:
        """A duration to the second."""
        if duration is None:
            return UNKNOWN
        minutes, seconds = divmod(round(duration.total_seconds()), 60)
        if minutes:
            return self.texts("time.minutes_seconds", minutes=minutes, seconds=f"{seconds:02}")
        return self.texts("time.seconds", seconds=seconds) if seconds else self.texts("time.under_second")

    def took(self, began: datetime, ended: datetime | None) -> str:
        """The duration of an execution."""
        return self.duration(None if ended is None else ended - began)

    def _mark(self, at: datetime, text: str) -> Markup:
        utc = at.astimezone(UTC)
        return Markup('<time datetime="{}" title="{:%Y-%m-%d %H:%M:%S} UTC">{}</time>').format(to_text(utc), utc, text)


def describe_schedule(schedule: str, formats: Formats) -> Markup:
    """Common schedules in words, with the cron expression on hover; others as cron expressions."""
    minute, hour, *rest = schedule.split()
    if rest != ["*", "*", "*"] or not minute.isdigit() or not (hour.isdigit() or hour == "*"):
        return escape(formats.texts("site.schedule_cron", cron=schedule))
    if hour == "*":
        text = formats.texts("site.schedule_hourly", minute=int(minute))
    else:
        text = formats.texts("site.schedule_daily", time=f"{int(hour):02}:{int(minute):02}")
    return Markup('<span title="{}">{}</span>').format(schedule, text)
