"""Secrets: values that cannot print themselves, encryption, redaction, tokens."""
