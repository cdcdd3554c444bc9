"""Media platforms that Tidings collects from: Bilibili, Weibo, Xiaohongshu and the open web."""
