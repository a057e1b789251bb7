"""Anomaly mode."""

from __future__ import annotations

import warnings

from tesserack import _native

__all__ = ["detect_anomaly", "set_anomaly_enabled", "set_detect_anomaly"]


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Switch anomaly mode: forward operations remember their line, and backward names it when something is wrong.

    With ``check_nan`` a NaN gradient counts as wrong.
    """
    _native._set_anomaly(mode)
    _native._set_anomaly_checks_nan(check_nan)


class set_detect_anomaly:
    """Switch anomaly mode on or off, at once or as a context manager."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = (_native.is_anomaly_enabled(), _native.is_anomaly_check_nan_enabled())
        set_anomaly_enabled(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        set_anomaly_enabled(*self._before)


class detect_anomaly:
    """Context manager for anomaly mode: an error in backward names the forward line that led to it. Slow."""

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime "
            "and should only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._before = (_native.is_anomaly_enabled(), _native.is_anomaly_check_nan_enabled())
        set_anomaly_enabled(True, self._check_nan)

    def __exit__(self, *exc: object) -> None:
        set_anomaly_enabled(*self._before)
