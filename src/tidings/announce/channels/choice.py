"""The channels that a person can ask for. Apart from the pipeline, so that a command line can be read without it."""

from enum import StrEnum


class ChannelChoice(StrEnum):
    """Which channels an execution is for."""

    ALL = "all"
    INDEXNOW = "indexnow"
    BING = "bing"
    BAIDU = "baidu"
    GOOGLE = "google"
