"""The cookies of the user's own accounts: `states` says what becomes of one, `pool` lends them and only reads,
`records` and `outcomes` are the writing half, which `pool` never imports; `rows` is the table that both know.
"""
