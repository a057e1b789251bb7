"""Activations computed again, or kept elsewhere, by wrapping modules."""
