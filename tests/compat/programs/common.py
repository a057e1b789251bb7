"""What the programs share: weights and noise that do not depend on the library, and how losses are told."""

import numpy as np
import torch

noise = np.random.RandomState(1)


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
    print("loss", float(loss))
