"""When sites are executed: cron times, due times in the database, and pauses."""
