"""What the programs share: weights and noise that do not depend on the library, and how losses are told.

LOSSES=4 in the environment ends a program after so many of them. Beside a card it says at the end whether that was used.
"""

import atexit
import os
import sys

import numpy as np
import torch

noise = np.random.RandomState(1)
left = int(os.environ.get("LOSSES", 0))
if torch.cuda.is_available():
    atexit.register(lambda: print("card", "used" if torch.cuda.max_memory_allocated() else "idle"))


def same_weights(*models):
    """Fill parameters from NumPy, by name, so that every library starts from the same."""
    state = np.random.RandomState(0)
    for model in models:
        with torch.no_grad():
            for _, p in sorted(model.named_parameters()):
                fan = p.shape[-1] if p.dim() > 1 else 10
                p.copy_(torch.from_numpy(state.randn(*p.shape).astype("float32") / np.sqrt(fan)))


def randn(*shape):
    return torch.from_numpy(noise.randn(*shape).astype("float32"))


def tell(loss):
    global left
    print("loss", float(loss))
    left -= 1
    if left == 0:
        sys.exit()
