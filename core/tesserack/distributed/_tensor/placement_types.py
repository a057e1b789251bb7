"""``torch.distributed._tensor.placement_types``: the name that :mod:`tesserack.distributed.tensor` had for these."""

from tesserack.distributed.tensor.placement_types import *  # noqa: F403
from tesserack.distributed.tensor.placement_types import __all__ as __all__
