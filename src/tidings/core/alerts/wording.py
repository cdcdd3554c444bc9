"""What people read: the title of an event and the lines below it, in English and Chinese. Reasons and actions come as
they are given; a kind without a title of its own is shown by its name.
"""

from typing import Final

from tidings.core.alerts.events import AlertEvent, EventType, Language
from tidings.core.clock import to_text

_TITLES: Final = {
    "execution_failed": {Language.ENGLISH: "The execution failed", Language.CHINESE: "执行失败"},
    "no_urls": {Language.ENGLISH: "The sitemap lists no URLs", Language.CHINESE: "站点地图中没有网址"},
    "many_failures": {Language.ENGLISH: "Many URLs failed", Language.CHINESE: "大量网址提交失败"},
    "channel_broken": {Language.ENGLISH: "An engine refuses the site", Language.CHINESE: "搜索引擎拒绝该站点"},
    "channel_off": {Language.ENGLISH: "A channel was switched off", Language.CHINESE: "提交渠道已停用"},
    "not_run": {Language.ENGLISH: "The site has not run as scheduled", Language.CHINESE: "站点未按计划运行"},
    "workflow_failed": {Language.ENGLISH: "The workflow failed", Language.CHINESE: "工作流失败"},
    "sitemap_shrank": {Language.ENGLISH: "The sitemap shrank by more than half", Language.CHINESE: "站点地图缩减过半"},
    "mirror_failed": {Language.ENGLISH: "The mirror in Feishu is behind", Language.CHINESE: "飞书镜像未能同步"},
    "no_active_cookie": {Language.ENGLISH: "P0: no cookie can be used", Language.CHINESE: "P0：没有可用的 Cookie"},
    "success_rate": {
        Language.ENGLISH: "P1: the success rate is under 90 %",
        Language.CHINESE: "P1：成功率低于 90%",
    },
    "many_pending": {
        Language.ENGLISH: "P2: more than 500 candidates wait",
        Language.CHINESE: "P2：待采集内容超过 500 条",
    },
    "cookie_resting": {Language.ENGLISH: "A cookie needs a person", Language.CHINESE: "Cookie 需要人工处理"},
    "search_failed": {Language.ENGLISH: "Keywords cannot be searched", Language.CHINESE: "关键词搜索失败"},
    "notes_skipped": {Language.ENGLISH: "Notes were skipped", Language.CHINESE: "部分内容已跳过"},
}
_RESOLVED: Final = {Language.ENGLISH: "Resolved: ", Language.CHINESE: "已恢复："}
_COLON: Final = {Language.ENGLISH: ": ", Language.CHINESE: "："}
_REASON: Final = {Language.ENGLISH: "Reason", Language.CHINESE: "原因"}
_ACTION: Final = {Language.ENGLISH: "Action", Language.CHINESE: "建议"}
_COUNT: Final = {Language.ENGLISH: "Count", Language.CHINESE: "数量"}
_SINCE: Final = {Language.ENGLISH: "Since", Language.CHINESE: "开始"}
_UNTIL: Final = {Language.ENGLISH: "Until", Language.CHINESE: "恢复"}


def write_title(event: AlertEvent) -> str:
    """One line: what happened, and to what."""
    language = event.language
    titles = _TITLES.get(event.kind)
    title = event.kind.replace("_", " ").capitalize() if titles is None else titles[language]
    prefix = _RESOLVED[language] if event.type is EventType.RESOLVED else ""
    return f"{prefix}{title}{_COLON[language]}{event.subject}"


def write_body(event: AlertEvent) -> str:
    """The rest, a line for each thing that is known. What is over needs no action."""
    over = event.type is EventType.RESOLVED
    lines = [
        (_REASON, event.reason),
        (_ACTION, "" if over else event.action),
        (_COUNT, "" if event.count is None else f"{event.count:,}"),
        (_SINCE, to_text(event.since)),
        (_UNTIL, to_text(event.occurred_at) if over else ""),
    ]
    language = event.language
    return "\n".join(f"{label[language]}{_COLON[language]}{value}" for label, value in lines if value)
