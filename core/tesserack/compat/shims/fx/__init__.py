"""``torch.fx`` is Tesserack's own; names that moved within it lead there."""
