"""Patterns for the names of modules and files."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["GlobGroup", "GlobPattern"]

GlobPattern = str | Iterable[str]


class GlobGroup:
    """Names that match one of the patterns in ``include`` and none in ``exclude``.

    A pattern is words with ``separator`` between: ``*`` stands for any letters of a word, and the word ``**`` for any
    number of words, none included. ``ValueError`` for a word with more than ``**`` in it.

    >>> group = GlobGroup("torch.**", exclude="torch.testing.*")
    >>> [group.matches(name) for name in ("torch", "torch.nn.functional", "torch.testing.help", "torchvision")]
    [True, True, False, False]
    """

    def __init__(self, include: GlobPattern, *, exclude: GlobPattern = (), separator: str = ".") -> None:
        self._shown = f"GlobGroup(include={include}, exclude={exclude})"
        self.include = self._glob_list(include, separator)
        self.exclude = self._glob_list(exclude, separator)
        self.separator = separator

    def __repr__(self) -> str:
        return self._shown

    def matches(self, candidate: str) -> bool:
        """Whether a name is meant."""
        word = self.separator + candidate
        found, left_out = (any(p.fullmatch(word) for p in patterns) for patterns in (self.include, self.exclude))
        return found and not left_out

    @staticmethod
    def _glob_list(elems: GlobPattern, separator: str = ".") -> list[re.Pattern[str]]:
        words = [elems] if isinstance(elems, str) else elems
        return [GlobGroup._glob_to_re(word, separator) for word in words]

    @staticmethod
    def _glob_to_re(pattern: str, separator: str = ".") -> re.Pattern[str]:
        between, letters = re.escape(separator), f"[^{re.escape(separator)}]"

        def expression(word: str) -> str:
            if word == "**":
                return f"({between}{letters}+)*"
            if "**" in word:
                raise ValueError(f"GlobGroup: ** can only appear as an entire path segment, got {pattern!r}")
            return between + f"{letters}*".join(map(re.escape, word.split("*")))

        return re.compile("".join(map(expression, pattern.split(separator))))
