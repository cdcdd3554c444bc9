"""The protocols: how a request looks and what an answer means, one module for each channel."""
