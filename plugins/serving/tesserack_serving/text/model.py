"""What a model of text has to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tesserack_serving.protocol.errors import ServingError

__all__ = ["Sampling", "TextModel"]


@dataclass
class TextModel:
    """A module that scores next tokens, with what turns text into tokens and back; what builds the model returns it.

    The module is called as ``module(tokens, places, attend)`` and returns scores of shape (1, n, words):

    - ``tokens`` (1, n), int64: the new tokens of all sequences, one sequence after another, nothing between them;
    - ``places`` (n), int64: where each stands in its own sequence, from 0;
    - ``attend(q, k, v)``: to be called once in every layer, always in the same order, in the place of
      ``scaled_dot_product_attention(q, k, v, is_causal=True)``: q is (1, heads, n, size), k and v may have fewer heads.
      It keeps k and v, lets every token attend to those before it in its own sequence, and returns the shape of q.

    Args:
        module: the model.
        encode: a text's tokens.
        decode: the text of tokens.
        context: how many tokens a sequence has at most, the prompt's included.
        end: the token that ends a sequence, if there is one.
        sequences: how many may be in the batch at once.
        cache_tokens: for how many tokens there are pages, all sequences together; by default, all sequences whole.
        block: tokens of a page.
        chunk: new tokens of a step at most; longer prompts take several steps, between those of the others.
    """

    module: Callable[..., Any]
    encode: Callable[[str], Sequence[int]]
    decode: Callable[[Sequence[int]], str]
    context: int
    end: int | None = None
    sequences: int = 16
    cache_tokens: int = 0
    block: int = 16
    chunk: int = 256

    def __post_init__(self) -> None:
        if min(self.context, self.sequences, self.block, self.chunk) < 1:
            raise ValueError("TextModel: context, sequences, block and chunk begin at 1")
        self.cache_tokens = self.cache_tokens or self.sequences * -(-self.context // self.block) * self.block
        if self.cache_tokens // self.block * self.block < self.context:
            raise ValueError(
                f"TextModel: pages for {self.cache_tokens} tokens do not hold a sequence of {self.context}"
            )


@dataclass(frozen=True)
class Sampling:
    """How a text goes on. ``temperature`` 0 takes the likeliest token; ``seed`` makes the same text of the same prompt.

    >>> Sampling.from_parameters({"max_tokens": 8, "stop": "."}).stop
    ('.',)
    """

    max_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()

    @classmethod
    def from_parameters(cls, given: dict[str, Any]) -> Sampling:
        """From a request's parameters; others are left alone. ``ServingError`` for bad values."""
        found: dict[str, Any] = {}
        for name, (kinds, low, high) in _RANGES.items():
            value = given.get(name)
            if value is None:
                continue
            if type(value) not in kinds or not low <= value <= high:
                raise ServingError(f"parameter {name!r}: expected a number from {low} to {high:g}, got {value!r}")
            found[name] = value
        stop = given.get("stop", ())
        stop = () if stop is None else stop
        stop = (stop,) if isinstance(stop, str) and stop else stop
        if not isinstance(stop, (list, tuple)) or not all(isinstance(text, str) and text for text in stop):
            raise ServingError(f"parameter 'stop': expected texts, got {stop!r}")
        return cls(**found, stop=tuple(stop))


_RANGES: dict[str, tuple[tuple[type, ...], float, float]] = {
    "max_tokens": ((int,), 1, 1 << 31),
    "temperature": ((int, float), 0, 100),
    "top_k": ((int,), 0, 1 << 31),
    "top_p": ((int, float), 0, 1),
    "seed": ((int,), 0, (1 << 63) - 1),
}
