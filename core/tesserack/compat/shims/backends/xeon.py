"""``torch.backends.xeon``: its launcher is not here."""
