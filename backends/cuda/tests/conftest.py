"""A simulated driver whose devices the tests use under a name of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# families.py and planner.py are there.
sys.path.append(str(Path(__file__).parents[3] / "plugins/kernelgen/tests"))
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import tesserack as ts
from simulated import NAME, Simulated
from simulated_cublaslt import CublasLt
from simulated_cudnn import SimulatedCudnn
from simulated_nccl import SimulatedNccl
from tesserack import _native
from tesserack.backends import _loader
from tesserack_cuda import set_up
from tesserack_cuda.backend import CUDA


@pytest.fixture(scope="session")
def driver() -> Simulated:
    """The driver, with the libraries."""
    simulated = Simulated(devices=2, memory=1 << 28)
    simulated.libraries["cublasLt"] = CublasLt(simulated)
    simulated.libraries["nccl"] = SimulatedNccl(simulated)
    simulated.libraries["cudnn"] = SimulatedCudnn(simulated)
    backend = CUDA(NAME, simulated.load)
    set_up(backend)
    _loader._namespaces[NAME] = backend.namespace  # as for a backend that an installed package announces
    register: Any = _native
    register._register_python_backend(backend, __file__)
    return simulated


@pytest.fixture
def no_fallback(driver: Simulated) -> Any:
    """Nothing runs on the cpu instead."""
    before = ts.backends.get_fallback()
    ts.backends.set_fallback("error")
    yield
    ts.backends.set_fallback(before)
