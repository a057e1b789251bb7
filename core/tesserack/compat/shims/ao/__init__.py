"""``torch.ao``: what of quantization runs in floating point, which models are written with."""
