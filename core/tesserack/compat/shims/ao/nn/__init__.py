"""``torch.ao.nn``: layers that models for quantization are made of, in floating point."""
