"""Tools of the project that work on the live registry."""
