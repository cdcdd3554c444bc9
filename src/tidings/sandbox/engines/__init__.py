"""Search engines that take announced pages: IndexNow engines and Bing."""
