"""What both pipelines stand on; knows neither."""
