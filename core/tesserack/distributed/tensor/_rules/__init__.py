"""Sharding rules, by families of operators; importing the package registers them."""

from tesserack.distributed.tensor._rules import (
    attention,
    embedding,
    indexing,
    loss,
    matmul,
    norms,
    pointwise,
    random,
    reductions,
    steps,
    views,
    whole,
)

__all__ = [
    "attention",
    "embedding",
    "indexing",
    "loss",
    "matmul",
    "norms",
    "pointwise",
    "random",
    "reductions",
    "steps",
    "views",
    "whole",
]
