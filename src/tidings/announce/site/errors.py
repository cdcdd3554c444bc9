"""The error of a site's settings. Not in `site`, because the settings of its channels raise it, too."""


class SiteError(ValueError):
    """A setting of a site breaks a rule. `field` is its name in the API; the message names field and rule."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(rule if rule.startswith(field) else f"{field}: {rule}")
        self.field = field
        self.rule = rule
