"""The alerts of collect. `alerts` and the mirror raise them."""

from tidings.core.alerts.kinds import AlertKind, AlertLevel


class CollectAlert(AlertKind):
    """Each is about the subject that its comment names."""

    # A platform: it has work to do or had cookies, and no cookie can be used.
    NO_ACTIVE_COOKIE = "no_active_cookie", AlertLevel.P0, "P0: no cookie can be used", "P0：没有可用的 Cookie"
    # A platform: it is down, blocks this machine, or asks every cookie for a captcha, so it is paused.
    PLATFORM_PAUSED = "platform_paused", AlertLevel.P1, "P1: a platform is paused", "P1：平台已暂停采集"
    # Collect as a whole: under 90 % of the tries succeeded for ten minutes.
    SUCCESS_RATE = "success_rate", AlertLevel.P1, "P1: the success rate is under 90 %", "P1：成功率低于 90%"
    # Collect as a whole: more than 500 candidates have been waiting for half an hour.
    MANY_PENDING = "many_pending", AlertLevel.P2, "P2: more than 500 candidates wait", "P2：待采集候选超过 500 个"
    # A cookie: it cools, or is invalid or banned. A captcha raises this alert, too.
    COOKIE_RESTING = "cookie_resting", AlertLevel.INFO, "A cookie needs a person", "Cookie 需要人工处理"
    # A cookie: its session ends within a few days.
    COOKIE_ENDING = "cookie_ending", AlertLevel.P2, "P2: a cookie ends soon", "P2：Cookie 即将到期"
    # A platform: candidates were given up for a reason that no retry can change.
    NOTES_SKIPPED = "notes_skipped", AlertLevel.INFO, "Notes were skipped", "部分笔记已跳过"
    # A platform: keywords cannot be searched, although there is a cookie.
    SEARCH_FAILED = "search_failed", AlertLevel.INFO, "Keywords cannot be searched", "关键词搜索失败"
    # A workflow: it failed as a whole. Resolved when it next succeeds, or when it has nothing to do.
    WORKFLOW_FAILED = "workflow_failed", AlertLevel.INFO, "The workflow failed", "工作流失败"
    # A mirrored table: Feishu does not take its rows, or two processes mirror it to two targets.
    MIRROR_FAILED = "mirror_failed", AlertLevel.INFO, "The mirror in Feishu is behind", "飞书镜像未能同步"
