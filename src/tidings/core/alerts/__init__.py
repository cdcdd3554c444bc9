"""Alerts: conditions that need a person. Each fires once, is resolved once, and its events are kept until delivered.

The rest of the program uses `Alerts`. Events leave through `WebhookDestination`, `FeishuBotDestination` and
`AppriseDestination`.
"""
