"""Who multiplies: own tiles, oneDNN or OpenBLAS, as the environment or what was measured says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tesserack_cpu import tune

ts = pytest.importorskip("tesserack")

PRODUCTS = """
import sys
import numpy as np, tesserack as ts
rng = np.random.default_rng(3)
found = []
for m, n, k in ((1100, 48, 300), (64, 64, 64), (20, 700, 1030), (15, 700, 300)):
    for layout in ("nn", "nt", "tn", "tt"):
        a, b = (rng.normal(size=size).astype("f4") for size in ((m, k), (k, n)))
        x = ts.from_numpy(a) if layout[0] == "n" else ts.from_numpy(a.T.copy()).t()
        y = ts.from_numpy(b) if layout[1] == "n" else ts.from_numpy(b.T.copy()).t()
        row, whole = (ts.from_numpy(rng.normal(size=size).astype("f4")) for size in ((n,), (m, n)))
        column = ts.zeros(n, m).t()
        results = [x @ y, ts.addmm(row, x, y), ts.addmm(whole, x, y), whole.clone().addmm_(x, y)]
        results += [ts.matmul(x, y, out=column), ts.nn.functional.linear(x, y.t().contiguous(), row)]
        wide = a.astype("f8") @ b.astype("f8")
        for result, added in zip(results, (0, row.numpy(), whole.numpy(), whole.numpy(), 0, row.numpy()), strict=True):
            error = np.abs(result.numpy() - (wide + added)).max()
            assert error < 2e-6 * k, (m, n, k, layout, error)
            found.append(result.contiguous().numpy())
np.savez(sys.argv[1], *found)
"""


def products(tmp_path: Path, name: str, **environment: str) -> list[np.ndarray]:
    """What a process computes."""
    file = tmp_path / f"{name}.npz"
    env = {**os.environ, "TESSERACK_KERNEL_CACHE": str(tmp_path / "cache"), **environment}
    if "TESSERACK_CPU_PRODUCTS" not in environment:
        env.pop("TESSERACK_CPU_PRODUCTS", None)
    subprocess.run([sys.executable, "-c", PRODUCTS, str(file)], check=True, env=env, timeout=120)
    with np.load(file) as arrays:
        return list(arrays.values())


def can_choose() -> bool:
    """Without AVX2 there are no own tiles. A card built without OpenBLAS has nothing else, and factors no matrices."""
    if "(baseline)" in ts.backends.properties("cpu")["name"]:
        return False
    try:
        ts.linalg.inv(ts.eye(2, device="cpu"))
    except RuntimeError as error:
        if "without" in str(error):
            return False
        raise
    return True


def equal(a: list[np.ndarray], b: list[np.ndarray]) -> list[bool]:
    return [np.array_equal(x, y) for x, y in zip(a, b, strict=True)]


def test_every_engine_multiplies_whatever_lies_how(tmp_path: Path) -> None:
    """And the same bits in every process."""
    own = products(tmp_path, "own", TESSERACK_CPU_PRODUCTS="own")
    assert all(equal(own, products(tmp_path, "unset")))
    by = {e: products(tmp_path, e, TESSERACK_CPU_PRODUCTS=e) for e in tune.ENGINES[1:]}
    assert all(equal(by["openblas"], products(tmp_path, "again", TESSERACK_CPU_PRODUCTS="openblas")))
    assert all(equal(own, by["openblas"])) is not can_choose()  # the word reaches the product
    assert all(equal(own, by["openblas"])[-24:])  # fewer than 16 rows are never classed


def test_what_was_measured_is_read_by_later_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERACK_KERNEL_CACHE", str(tmp_path / "cache"))
    own, blas = (products(tmp_path, e, TESSERACK_CPU_PRODUCTS=e) for e in ("own", "openblas"))
    lines = [tune.Product("nn", 32, 512, 1536, t).line("openblas") for t in (1, 2)]
    tune._keep([*lines, "float32 nn 1 2", "float64 nn 64 64 64 1 openblas"])
    assert tune.kept_choice()[:2] == lines
    kept = products(tmp_path, "kept")
    long = slice(48, 53)  # k = 1030: shorter sums are the same in any engine
    assert all(equal(kept[long], blas[long])) and all(equal(kept[long], own[long])) is not can_choose()
    assert all(equal(kept[54:], own[54:]))
    assert tune.main(["--forget"]) == 0
    assert tune.kept_choice() == [] and all(equal(products(tmp_path, "forgotten"), own))


def test_measuring_keeps_what_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TESSERACK_KERNEL_CACHE", str(tmp_path))
    assert tune.main(["--sizes", "32", "--threads", "1", "--rounds", "1", "--seconds", "0.001"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("32 x 32 x 32") == 3 and "of 3 classes" in shown
    assert all(line.startswith("float32 ") and line.split()[-1] in tune.ENGINES for line in tune.kept_choice())
    monkeypatch.setenv("TESSERACK_KERNEL_CACHE", "")
    with pytest.raises(SystemExit, match="no folder"):
        tune.main(["--forget"])


def test_noise_is_no_reason() -> None:
    assert tune.choose([(1.0, 0.97, 1.1), (1.0, 0.96, 1.0), (1.0, 0.5, 1.2)]) == "own"
    assert tune.choose([(1.0, 0.9, 0.8), (2.0, 1.8, 1.7)]) == "openblas"


@pytest.mark.parametrize("option", ["--threads", "--sizes", "--rounds"])
def test_numbers_below_one_are_refused_before_anything_is_measured(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        tune.main([option, "0"])
    assert f"argument {option}: expected 1 or more, got 0" in capsys.readouterr().err
