"""What may change between two calls of a compiled function."""
