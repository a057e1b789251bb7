"""Which packages are tried, and where their tests are."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["SUITES", "Suite"]


@dataclass(frozen=True)
class Suite:
    """The tests of one package."""

    package: str  # as pip names it
    module: str  # as it is imported
    tests: tuple[str, ...] = ()  # inside the source package; none: there are none in it
    doctests: bool = False  # of the installed modules
    options: tuple[str, ...] = ()  # of pytest
    without: tuple[str, ...] = ()  # tests left out, by a part of their names
    needs: tuple[str, ...] = ()  # what only the tests import
    draws: bool = False  # its expectations are PyTorch's random numbers
    share: int = 1  # one test in so many
    part: int = 0  # which of them, from 0
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """What the tests are, in words."""
        kind = "doctests" if self.doctests else "tests"
        kind += "".join(f", no `{name}`" for name in self.without)
        part = f" (part {self.part})" if self.part else ""
        return f"{kind}, 1 in {self.share}{part}" if self.share > 1 else kind


SUITES = (
    Suite(
        "einops",
        "einops",
        ("einops/tests",),
        without=("notebook", "torch_compile"),  # minutes with torch
        needs=("parameterized",),
        environment={"EINOPS_TEST_BACKENDS": "numpy,torch"},
    ),
    Suite("torchmetrics", "torchmetrics", doctests=True, draws=True, share=8, part=3),
    Suite("timm", "timm", ("tests",), without=("torchscript", "jit", "compile"), share=8, part=3),
    Suite(
        "accelerate",
        "accelerate",
        ("tests",),
        without=("launch", "examples"),
        needs=("parameterized",),
        share=3,
    ),
    Suite(
        "skorch",
        "skorch",
        ("skorch/tests",),
        options=("-p", "flaky.flaky_pytest_plugin"),
        needs=("pandas", "flaky"),
        share=4,
        part=1,
    ),
    Suite("lightning", "lightning", doctests=True, draws=True),
    Suite("pytorch-optimizer", "pytorch_optimizer", ("tests",), draws=True, share=6, part=1),
    Suite("gpytorch", "gpytorch", ("test",), share=8, part=3),
    Suite(
        "pyro-ppl",
        "pyro",
        ("tests",),
        options=("-W", "ignore::pytest.PytestUnknownMarkWarning"),
        without=("examples",),
    ),
    Suite("kornia", "kornia", doctests=True, draws=True, share=8, part=3),
    Suite("torch-geometric", "torch_geometric", doctests=True, draws=True),
    Suite("tensorboardX", "tensorboardX", ("tests",), needs=("tensorboard",)),
    Suite("linear-operator", "linear_operator", ("test",), share=4),
    Suite("torch-optimizer", "torch_optimizer", ("tests",)),
    Suite("torchsde", "torchsde", ("tests",), share=4),
    Suite("opt-einsum", "opt_einsum", ("opt_einsum/tests",)),
    Suite("autoray", "autoray", ("tests",), share=6),
    Suite("einx", "einx", ("test",), share=8),
    Suite("julius", "julius", ("tests",)),
    Suite("nflows", "nflows", ("tests",), needs=("torchtestcase",)),
    Suite("normflows", "normflows", ("normflows",)),
    Suite("opacus", "opacus", ("opacus/tests",), needs=("hypothesis",), share=12),
    Suite("poutyne", "poutyne", ("tests",), share=8),
    Suite("ptwt", "ptwt", ("tests",), share=24),
    Suite("pytorch-ignite", "ignite", ("tests/ignite",), options=("--ignore=tests/ignite/distributed",), share=20),
    Suite("pytorch-kinematics", "pytorch_kinematics", ("tests",)),
    Suite("tensorly", "tensorly", ("tensorly",), share=3, environment={"TENSORLY_BACKEND": "pytorch"}),
)
