"""Algorithms over ranks: joining ranks with uneven inputs, hooks that compress gradients."""
