"""Which class is a subclass of which: programs ask ``isinstance(layer, nn.MaxPool2d)`` and freeze what answers yes."""

from __future__ import annotations

import importlib
import inspect
import itertools
from typing import Any

import pytest

# Modules whose public classes are compared, with the private bases that programs test for.
FAMILIES = {
    "nn": {
        "batchnorm": ("_NormBase", "_BatchNorm"),
        "conv": ("_ConvNd",),
        "dropout": ("_DropoutNd",),
        "instancenorm": ("_InstanceNorm",),
        "padding": ("_CircularPadNd", "_ConstantPadNd", "_ReflectionPadNd", "_ReplicationPadNd"),
        "pooling": ("_AdaptiveAvgPoolNd", "_AdaptiveMaxPoolNd", "_AvgPoolNd", "_MaxPoolNd", "_MaxUnpoolNd"),
    },
    "nn.utils.prune": {},
    "optim": {},
    "optim.lr_scheduler": {},
    "utils.data": {},
    "distributions": {},
    "distributions.transforms": {},
}
# PyTorch says by the metaclass of Buffer what is one, and that only of instances: isinstance agrees.
DIFFERENT = {("UninitializedBuffer", "Buffer")}


def _pairs(family: str) -> dict[str, tuple[Any, Any]]:
    theirs, ours = (importlib.import_module(f"{root}.{family}") for root in ("torch", "tesserack"))
    found = {
        name: (value, getattr(ours, name))
        for name, value in vars(theirs).items()
        if inspect.isclass(value)
        and value.__module__.startswith("torch")
        and inspect.isclass(getattr(ours, name, None))
    }
    for module, names in FAMILIES[family].items():
        parts = [importlib.import_module(f"{root}.nn.modules.{module}") for root in ("torch", "tesserack")]
        found.update({name: (getattr(parts[0], name), getattr(parts[1], name)) for name in names})
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_subclasses_are_those_of_pytorch(family):
    classes = _pairs(family)
    assert len(classes) > 5
    wrong = [
        f"issubclass({a}, {b}): torch {issubclass(classes[a][0], classes[b][0])}"
        for a, b in itertools.permutations(classes, 2)
        if (a, b) not in DIFFERENT
        and issubclass(classes[a][0], classes[b][0]) != issubclass(classes[a][1], classes[b][1])
    ]
    assert not wrong, "\n".join(wrong)
