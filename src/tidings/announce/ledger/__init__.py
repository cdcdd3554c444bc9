"""What was announced: accepted pages, pending deliveries, seen pages, corrections, and statistics by day."""
