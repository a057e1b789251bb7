"""Modules of PyTorch's that share a file of their family are found by their own names."""

from __future__ import annotations

import importlib
import pickle

import pytest
import tesserack as ts
from tesserack.utils import homes

JOINED = sorted(name for name in homes.HOMES if name.startswith("tesserack.distributions."))


@pytest.mark.parametrize("name", JOINED)
def test_a_module_that_shares_a_file_is_imported_and_an_attribute(name):
    module = importlib.import_module(name)
    assert getattr(ts.distributions, name.rpartition(".")[2]) is module
    assert module.__name__ == homes.HOMES[name]


def test_classes_are_read_by_the_names_of_before():
    assert pickle.loads(b"ctesserack.distributions.half_normal\nHalfNormal\n.") is ts.distributions.HalfNormal
    from tesserack.distributions.studentT import StudentT

    assert StudentT is ts.distributions.StudentT
    with pytest.raises(AttributeError, match="nosuch"):
        _ = ts.distributions.nosuch
