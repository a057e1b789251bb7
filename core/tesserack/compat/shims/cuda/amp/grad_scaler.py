"""``torch.cuda.amp.grad_scaler``."""

from tesserack.amp.grad_scaler import OptState
from tesserack.compat.shims.cuda.amp import GradScaler

__all__ = ["GradScaler", "OptState"]
