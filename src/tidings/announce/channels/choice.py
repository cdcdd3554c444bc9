"""The channels that a person can ask for. Not in the pipeline's modules, so that parsing a command line does not load
them."""

from enum import StrEnum


class ChannelChoice(StrEnum):
    """Which channels an execution is for."""

    ALL = "all"
    INDEXNOW = "indexnow"
    BING = "bing"
    BAIDU = "baidu"
    GOOGLE = "google"
