"""``torch.nn._reduction``: how a loss sums up, as the numbers and words that older code passes around."""

from __future__ import annotations

import warnings

__all__ = ["get_enum", "legacy_get_enum", "legacy_get_string"]

_NUMBERS = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """0 for none, 1 for mean, 2 for sum; ``ValueError`` for other words.

    >>> get_enum("mean")
    1
    """
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _NUMBERS[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The word for the two arguments that ``reduction`` replaced; each is True where it is None.

    >>> legacy_get_string(False, None, emit_warning=False)
    'sum'
    """
    found = "none" if reduce is False else "sum" if size_average is False else "mean"
    if emit_warning:
        text = f"size_average and reduce args will be deprecated, please use reduction='{found}' instead."
        warnings.warn(text, stacklevel=2)
    return found


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """:func:`get_enum` of :func:`legacy_get_string`."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
