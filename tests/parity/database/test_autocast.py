"""The dtypes that operators and recurrent layers give under autocast on the cpu, beside torch's."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
from op_samples import Sample, Standin, Unsupported, database, flat, ours_of, title, torch
from tesserack.testing.seeds import turn

SHARE = 6
DIFFERENT = {
    "pooling in 3 dims, max_unpool, padding by reflection or edges: torch has no bfloat16 kernel and takes float32": (
        "nn.functional.adaptive_avg_pool3d", "nn.functional.adaptive_max_pool3d", "nn.functional.max_pool3d",
        "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "nn.functional.max_unpool1d",
        "nn.functional.max_unpool2d", "nn.functional.max_unpool3d", "nn.functional.pad",
    ),
    "sums in float32, as the statistics of other devices": ("native_batch_norm", "nn.functional.linear_cross_entropy"),
    "of parts that are products there, and here too, or none": ("einsum", "inner", "linalg.pinv"),
    "a dtype that is storage alone": ("chalf",),
}  # fmt: skip
LISTED = {name for names in DIFFERENT.values() for name in names}


def dtypes_of(value: Any) -> list[str]:
    tensors = [item.tensor if isinstance(item, Standin) else item for item in flat(value)]
    return [str(t.dtype).split(".")[1] for t in tensors if isinstance(t, (ts.Tensor, torch.Tensor))]


def operators() -> list[Any]:
    chosen = [op for op in database.op_db if not op.name.startswith("jiterator") and op.name not in LISTED]
    return [pytest.param(op, id=title(op)) for op in turn(chosen, SHARE)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("op", operators())
def test_operators(op: Any, name: str) -> None:
    dtype = getattr(torch, name)
    if dtype not in op.supported_dtypes("cpu"):
        pytest.skip(f"has no {name} in PyTorch")
    for count, given in enumerate(op.sample_inputs("cpu", dtype)):
        if count == 3:
            break
        try:
            sample = Sample(given, "cpu")
            with torch.autocast("cpu", dtype=torch.bfloat16):
                theirs = op.op(*sample.theirs[0], **sample.theirs[1])
        except (Unsupported, RuntimeError, TypeError, ValueError, NotImplementedError):
            continue
        try:
            with ts.autocast("cpu", dtype=ts.bfloat16):
                ours = ours_of(op, sample)
        except Unsupported:
            continue
        assert dtypes_of(ours) == dtypes_of(theirs)


@pytest.mark.parametrize("name", ["bfloat16", "float32"])
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"])
def test_recurrent_layers(layer: str, name: str) -> None:
    found = []
    for lib in (torch, ts):
        module = getattr(lib.nn, layer)(3, 5)
        with lib.autocast("cpu", dtype=lib.bfloat16):
            x = lib.ones(2, 3) if layer.endswith("Cell") else lib.ones(4, 2, 3)
            try:
                result = module(x.to(getattr(lib, name)))
            except RuntimeError as error:
                if lib is torch and "primitive descriptor" in str(error):
                    pytest.skip("PyTorch has no LSTM of bfloat16 on processors without AVX-512")
                raise
        found.append(dtypes_of(result))
        flat(result)[0].float().sum().backward()
        assert all(str(p.grad.dtype).endswith(".float32") for p in module.parameters())
    assert found[0] == found[1]


CALLS = {
    "bilinear": lambda lib, t: lib.nn.functional.bilinear(t(3, 4), t(3, 5), t(2, 4, 5)),
    "prelu": lambda lib, t: lib.nn.functional.prelu(t(3, 4), t(4)),
    "tensordot to a number": lambda lib, t: lib.tensordot(t(3, 4), t(3, 4), 2),
    "tensordot": lambda lib, t: lib.tensordot(t(3, 4), t(3, 4), ([0], [0])),
    "grid_sample": lambda lib, t: lib.nn.functional.grid_sample(t(1, 1, 3, 3), t(1, 2, 2, 2), align_corners=False),
    "eigh": lambda lib, t: lib.linalg.eigh(t(3, 3) + lib.eye(3)).eigenvalues,
    "inverse": lambda lib, t: lib.inverse(t(3, 3) + lib.eye(3)),
    "cholesky_solve": lambda lib, t: lib.cholesky_solve(t(3, 1), lib.eye(3, dtype=t(1).dtype)),
}


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("call", CALLS)
def test_calls(call: str, name: str) -> None:
    found = []
    for lib in (torch, ts):
        with lib.autocast("cpu", dtype=lib.bfloat16):
            result = CALLS[call](lib, lambda *sizes, lib=lib: lib.ones(sizes, dtype=getattr(lib, name)))
            found.append(dtypes_of(result))
    assert found[0] == found[1]
