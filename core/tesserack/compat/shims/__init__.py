"""What PyTorch has under names that mean nothing in Tesserack: its own switches, devices and internals."""
