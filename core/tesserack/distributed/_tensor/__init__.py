"""``torch.distributed._tensor``: the name that :mod:`tesserack.distributed.tensor` had."""

from tesserack.distributed.tensor import *  # noqa: F403
from tesserack.distributed.tensor import __all__ as __all__
