"""Models on a device: built, given their weights, tried, and run in batches. Knows no server."""
