"""The mirror of the tables in a Feishu base: fed from an outbox, once for each row and in its latest state. `mirror` is
the way in; nothing that crawls knows of this package."""
