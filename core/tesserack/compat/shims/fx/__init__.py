"""Parts of ``torch.fx`` that mean nothing in Tesserack's."""
