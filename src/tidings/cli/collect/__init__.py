"""The commands of the collect pipeline: `tidings collect …` and `tidings cookies …`."""
