"""The error of a site's settings. Not in `site`, because the settings of its channels raise it, too."""

from tidings.core.secrets.secret import Secret


class SiteError(ValueError):
    """A setting of a site breaks a rule. `field` is its name in the API; the message names field and rule."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(rule if rule.startswith(field) else f"{field}: {rule}")
        self.field = field
        self.rule = rule


def check_unmasked(field: str, value: str) -> None:
    """Raises SiteError for a value with the text that an answer shows instead of a secret."""
    if Secret(value).masked in value:
        raise SiteError(field, "this is the masked value of an answer; leave it out to keep the present one")
