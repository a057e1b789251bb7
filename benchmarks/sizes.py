"""Sixty-five operators at 1 K, 256 K and 16 M elements: where calls, caches and memory decide.

``run.py --family sizes --pairs 3 --seconds 0.02`` takes three minutes.
"""

from __future__ import annotations

from typing import Any

from rows import Cost, Setup, row

SIDES = {"1K": 32, "256K": 512, "16M": 4096}  # of square tensors
LIMIT = 1.2  # of each; their geometric mean is to stay below 0.6

# Statements by what they read and write, in float32 elements an element of `a`.
_STATEMENTS = {
    (2, 1): ("a + b", "a - b", "a * b", "a / b", "fw.maximum(a, b)", "fw.atan2(a, b)", "fw.lerp(a, b, 0.3)"),
    (1, 1): (
        *("a * 2.0", "a + a[0]", "a * a[:, :1]", "-a", "a.abs()", "a.exp()", "p.log()", "p.sqrt()", "p.rsqrt()"),
        *("a.sin()", "a.cos()", "a.tanh()", "a.sigmoid()", "a.relu()", "F.gelu(a)", "F.silu(a)", "F.softplus(a)"),
        *("F.leaky_relu(a)", "a.erf()", "a.round()", "a.clamp(-1, 1)", "a**2", "p**1.5", "a.clone()", "a.t().clone()"),
        *("a.flip(0)", "a.roll(1, 1)", "a.tril()", "a.softmax(1)", "a.log_softmax(1)", "F.layer_norm(a, a.shape[1:])"),
        *("a.cumsum(1)", "a.cumsum(0)", "a[rows]", "a.gather(1, at)", "zeros.scatter_add(1, at, a)", "a.sort(1)"),
        *("a.masked_fill(m, 0.0)", "F.dropout(a)", "a.add_(0.5)"),
    ),
    (2, 2): ("fw.cat([a, b])", "fw.stack([a, b], 1)"),
    (1, 0): (
        *("a.sum()", "a.sum(0)", "a.sum(1)", "a.mean(1)", "a.var(1)", "a.std()", "a.max()", "a.amax(0)"),
        *("a.argmax(1)", "a.norm()", "a.topk(5, 1)", "a @ a[0]"),
    ),
    (2, 0): ("a.lt(b)", "F.mse_loss(a, b)", "fw.where(m, a, b)"),
    (0, 1): ("fw.randn(side, side)",),
}


def _setup(side: int) -> Setup:
    def setup(fw: Any, device: str) -> dict[str, Any]:
        a, b = (fw.randn(side, side, device=device) for _ in range(2))
        at = fw.randint(0, side, (side, side), device=device)
        names = {"fw": fw, "F": fw.nn.functional, "side": side, "a": a, "b": b, "p": a.abs() + 0.1, "m": a > b}
        return names | {"at": at, "rows": at[0], "zeros": fw.zeros_like(a)}

    setup.__module__ = __name__
    return setup


for _size, _side in SIDES.items():
    for (_read, _written), _group in _STATEMENTS.items():
        _bytes = 4 * _side * _side
        _cost = Cost(read=_read * _bytes, written=_written * _bytes)
        for _statement in _group:
            row(f"{_statement}, {_size}", _statement, LIMIT, cost=_cost)(_setup(_side))
