"""Runs functions on foreign input in child processes with limits of CPU time and memory."""
