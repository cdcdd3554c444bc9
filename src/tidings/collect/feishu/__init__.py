"""The mirror of our tables in a Feishu base. Rows reach it through an outbox, each once and in its latest state. Start
reading at `mirror`. The crawl API never imports this package."""
