"""The commands of the announce pipeline."""
