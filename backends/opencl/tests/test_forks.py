"""A child that was forked cannot use the parent's devices, and says so instead of waiting for ever."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import os, tesserack as ts
    from tesserack.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __init__(self):
            self.rows = ts.arange(4.0, device="opencl")
        def __len__(self):
            return 2
        def __getitem__(self, i):
            return {use}

    if __name__ == "__main__":
        try:
            print(len(list(DataLoader(Rows(), num_workers=1, worker_type="process", multiprocessing_context="fork"))))
        except RuntimeError as error:
            print("spawn" in str(error), "forked" in str(error))
        print(Rows().rows.sum().item())
"""


@pytest.mark.parametrize(
    "use",
    ["self.rows.tolist()[i]", "(self.rows + 1)[i].item()", "self.rows[i].cpu()", "ts.ones(3, device='opencl')"],
)
def test_a_forked_worker_says_that_it_cannot(use: str) -> None:
    program = textwrap.dedent(PROGRAM).format(use=use)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["True True", "6.0"], done.stderr
