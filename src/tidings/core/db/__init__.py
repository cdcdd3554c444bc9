"""The database: engines, transactions, SQLite, migrations."""
