"""Continuous batching of text: sequences join and leave a batch at every step; their keys and values lie in pages."""
