"""Errors for want of descriptors, which the system tells without a cause."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

__all__ = ["descriptors_for", "too_many_open"]


def too_many_open(what: str, why: str) -> OSError:
    """The error for ``what`` could not be opened; ``why`` says what holds descriptors, and what helps."""
    return OSError(errno.EMFILE, f"too many open files for {what}: {why}, or raise the limit (ulimit -n{_limit()})")


def _limit() -> str:
    try:
        import resource
    except ImportError:  # of a system without such limits
        return ""
    return f", now {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"


@contextlib.contextmanager
def descriptors_for(what: str, why: str) -> Iterator[None]:
    """Within it, want of descriptors is told as :func:`too_many_open` does."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        raise too_many_open(what, why) from error
