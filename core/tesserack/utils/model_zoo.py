"""Files of models from the network: :mod:`tesserack.hub` under its older name."""

from tesserack.utils.hub import load_state_dict_from_url
from tesserack.utils.hub import load_state_dict_from_url as load_url

__all__ = ["load_state_dict_from_url", "load_url"]
