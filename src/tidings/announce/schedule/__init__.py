"""When sites run: cron times, due times in the database, and pauses."""
