"""The shapes of requests about sites. They say which fields there are and of what type; the rules of a site, such as
what makes a good key, are in `announce.site` and are told in the same way. What can be said of those rules in
the API's description is said here."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema
from pydantic.alias_generators import to_camel

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.execution.given import MOST_GIVEN
from tidings.announce.site.site import MOST_BING_QUOTA

_LONGEST: Final = 2_048
_MOST: Final = 100

Text = Annotated[StrictStr, Field(max_length=_LONGEST)]
Texts = Annotated[list[Text], Field(max_length=_MOST)]
IndexNowKey = Annotated[Text, WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9-]{8,128}$"})]
Quota = Annotated[StrictInt, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_BING_QUOTA})]
Channel = Annotated[ChannelChoice, Field(description="What to submit to.")]


class Body(BaseModel):
    """A JSON body in camelCase; unknown fields are refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", populate_by_name=False)

    def to_fields(self) -> dict[str, Any]:
        """The fields that were given, under the names of the API."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class SiteBody(Body):
    """The fields that can be set. What is left out stays as it is; null sets the default."""

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
    bing_enabled: StrictBool | None = None
    bing_api_key: Text | None = None
    bing_daily_quota: Quota | None = None
    bing_priority: Literal["newest", "random"] | None = None


class NewSiteBody(SiteBody):
    """A new site: `indexnowKey` and one of `sitemapUrl` and `sitemapUrls` are required."""

    id: Text | None = None
    host: Text | None = None


class UrlsBody(Body):
    """URLs to be announced now."""

    urls: Annotated[list[Text], Field(min_length=1, max_length=MOST_GIVEN, examples=[["https://example.com/page"]])]
    channel: Channel = ChannelChoice.ALL


class RequeueBody(UrlsBody):
    """URLs that shall count as not announced."""


class ForgetBody(Body):
    """Undo what was announced since a moment."""

    since: Annotated[StrictStr, Field(max_length=40, description="A moment, or a day.", examples=["2026-11-15T10:00Z"])]
    channel: Channel = ChannelChoice.ALL
