"""Request shapes of announce's routes.

A shape says which fields there are and of which type. The rules of a site, such as a valid key, are in
`announce.site`; their errors become the same kind of answer.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StrictBool, StrictInt, StrictStr, WithJsonSchema
from pydantic.alias_generators import to_camel

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.due.given_pages import MOST_GIVEN
from tidings.announce.page_check.settings import DEFAULT_LIMIT, MOST_PAGES
from tidings.announce.site.channel_settings import AUTO, BaiduSettings, BingSettings
from tidings.announce.site.google_settings import GOOGLE_FIELDS

_LONGEST: Final = 2_048
_MOST: Final = 100

Text = Annotated[StrictStr, Field(max_length=_LONGEST)]
Texts = Annotated[list[Text], Field(max_length=_MOST)]
IndexNowKey = Annotated[Text, WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9-]{8,128}$"})]


def _read_quota(value: object) -> int | str:
    """A whole number, or `auto`. `announce.site` checks its limits."""
    if value == AUTO or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"it must be an integer, or {AUTO}")


BingQuota = Annotated[
    int | str,
    PlainValidator(_read_quota),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": BingSettings.fields.most_quota},
                {"const": AUTO, "description": "What Bing itself allows, up to 10,000."},
            ]
        }
    ),
]
BaiduQuota = Annotated[
    StrictInt, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": BaiduSettings.fields.most_quota})
]
Credentials = Annotated[StrictStr, Field(max_length=16_384)]
GoogleQuota = Annotated[
    StrictInt, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": GOOGLE_FIELDS.most_quota})
]
PageCheckLimit = Annotated[
    StrictInt, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_PAGES, "default": DEFAULT_LIMIT})
]
Priority = Literal["newest", "random"]
ChosenChannel = Annotated[ChannelChoice, Field(description="The channels to submit to.")]


class AnnounceBody(BaseModel):
    """A JSON body in camelCase; unknown fields are refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", populate_by_name=False)

    def to_fields(self) -> dict[str, Any]:
        """The fields that the client sent, under the API's names."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class SiteBody(AnnounceBody):
    """The fields that can be set. A missing field stays as it is; null sets the default."""

    sitemap_url: Text | None = Field(default=None, examples=["https://example.com/sitemap.xml"])
    sitemap_urls: Texts | None = None
    backup_sitemap_urls: Texts | None = None
    indexnow_key: IndexNowKey | None = Field(default=None, examples=["0f3a9c71-5b2e-4d8a-9c07-1e6f2a4b8d90"])
    key_location: Text | None = None
    search_engines: Texts | None = None
    submit_method: Literal["auto", "get", "post"] | None = None
    schedule: Text | None = None
    announce_removed: StrictBool | None = None
    enabled: StrictBool | None = None
    group: Text | None = Field(default=None, description="Sites of one customer or team.")
    hook_secret: Text | None = Field(default=None, description="Signs POST /hooks/{site}; GitHub's or Netlify's.")
    page_check: Literal["off", "sample", "all"] | None = Field(
        default=None, description="Fetch due pages first, and do not announce pages that should not be indexed."
    )
    page_check_limit: PageCheckLimit | None = None
    bing_enabled: StrictBool | None = None
    bing_api_key: Text | None = None
    bing_daily_quota: BingQuota | None = None
    bing_priority: Priority | None = None
    baidu_enabled: StrictBool | None = None
    baidu_token: Text | None = None
    baidu_site: Text | None = None
    baidu_daily_quota: BaiduQuota | None = Field(
        default=None, description="URLs a day (UTC+8) until an answer of Baidu says how many it really takes."
    )
    baidu_priority: Priority | None = None
    google_credentials: Credentials | None = Field(
        default=None, description="The JSON of a service account, as text. With it, changed sitemaps are submitted."
    )
    google_property: Text | None = Field(default=None, examples=["sc-domain:example.com"])
    google_indexing: Literal["jobPosting", "liveStream"] | None = Field(
        default=None,
        description="Send pages to the Indexing API. Google allows that only for pages with job postings, or with a "
        "BroadcastEvent in a VideoObject; any other use violates its terms.",
    )
    google_daily_quota: GoogleQuota | None = Field(
        default=None, description="Pages a day (Pacific time) for the Indexing API."
    )
    google_priority: Priority | None = None


class NewSiteBody(SiteBody):
    """A new site: `indexnowKey` and one of `sitemapUrl` and `sitemapUrls` are required."""

    id: Text | None = None
    host: Text | None = None


class UrlsBody(AnnounceBody):
    """URLs to announce now, or to count as not announced."""

    urls: Annotated[list[Text], Field(min_length=1, max_length=MOST_GIVEN, examples=[["https://example.com/page"]])]
    channel: ChosenChannel = ChannelChoice.ALL


class ForgetBody(AnnounceBody):
    """The time from which on announced pages are forgotten."""

    since: Annotated[
        StrictStr, Field(max_length=40, description="A timestamp or a day, UTC.", examples=["2026-11-15T10:00Z"])
    ]
    channel: ChosenChannel = ChannelChoice.ALL
