"""The checks of ``tesserack doctor``: functions that yield findings."""
