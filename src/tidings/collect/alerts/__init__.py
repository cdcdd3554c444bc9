"""The alerts of collect: their kinds, their texts, and the monitor that raises and resolves them."""
