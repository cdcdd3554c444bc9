"""When sites are executed: cron times, due times in the database, the scheduler, and pauses."""
