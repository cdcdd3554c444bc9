"""The ground that tests stand on: the wiring of the product, on a database and a clock of the test, on loopback."""

from tests.stage.installation import LOOPBACK, make_installation, make_settings, open_stage

__all__ = ["LOOPBACK", "make_installation", "make_settings", "open_stage"]
