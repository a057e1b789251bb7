"""Private names of PyTorch's that packages take, and what they are called here."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["ALIASES", "find"]

# Name in PyTorch: module and attribute here. Entries without an attribute are the module itself.
ALIASES = {
    "torch.torch": "torch",
    "torch.distributions.utils._standard_normal": "tesserack.distributions.utils:standard_normal",
    "torch.distributions.utils._sum_rightmost": "tesserack.distributions.utils:sum_rightmost",
    "torch.hub._get_torch_home": "tesserack.hub:torch_home",
    "torch.nn.modules.module._addindent": "tesserack.nn.modules.module:indented",
    "torch.nn.modules.module._IncompatibleKeys": "tesserack.nn.modules._state_dict:IncompatibleKeys",
    "torch.nn.utils.stateless._reparametrize_module": "tesserack.nn.utils.stateless:replaced",
    **{
        f"torch.utils.data._utils.collate.{name}": f"tesserack.utils.data.collate:{name}"
        for name in ("default_collate", "default_convert")
    },
}


def find(name: str) -> Any:
    """What a private name stands for."""
    module, _, attribute = ALIASES[name].partition(":")
    if not attribute:
        from tesserack.compat import _facade

        return _facade.get(module)
    return getattr(importlib.import_module(module), attribute)
