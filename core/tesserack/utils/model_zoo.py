"""Files of models from the network: :mod:`tesserack.hub` under its older name."""

from tesserack.utils.hub import load_state_dict_from_url
from tesserack.utils.hub import load_state_dict_from_url as load_url

__all__ = ["load_state_dict_from_url", "load_url"]


def __getattr__(name: str) -> object:
    if name == "tqdm":
        import importlib
        import importlib.util

        if importlib.util.find_spec("tqdm") is not None:
            return importlib.import_module("tqdm").tqdm
    raise AttributeError(f"module 'tesserack.utils.model_zoo' has no attribute {name!r}")
