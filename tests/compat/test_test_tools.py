"""``torch.testing._internal`` and ``_comparison``: what the tests of other packages are written with."""

import unittest

import pytest
import tesserack as ts
from tesserack import compat
from tesserack.library import definitions

PROGRAM = """
import torch
from torch.testing._comparison import NonePair, NumberPair, TensorLikePair, not_close_error_metas
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCPU, onlyCUDA
from torch.testing._internal.common_dtype import floating_types
from torch.testing._internal.common_utils import (
    TestCase, instantiate_parametrized_tests, noncontiguous_like, parametrize, subtest)
from torch.testing._internal import optests

seen = []

class TestCases(TestCase):
    @parametrize("n", [1, subtest(2, name="two")])
    @parametrize("word", ["a"])
    def test_product(self, n, word):
        seen.append((n, word))

    def test_equal(self):
        self.assertEqual(torch.tensor(1.0), 1.0 + 1e-8)
        self.assertEqual({"a": [torch.ones(2), 1]}, {"a": [torch.ones(2), 1.0]})
        self.assertEqual({1, 2}, {2, 1})
        self.assertEqual(noncontiguous_like(torch.arange(4)), torch.arange(4))
        self.assertNotEqual(torch.ones(2), torch.zeros(2))
        for wrong in (torch.ones(2, dtype=torch.float64), torch.ones(3), torch.tensor([1.0, 2.0])):
            with self.assertRaises(AssertionError):
                self.assertEqual(torch.ones(2), wrong)

instantiate_parametrized_tests(TestCases)

class TestDevices(TestCase):
    @dtypes(*floating_types())
    def test_of_dtype(self, device, dtype):
        seen.append((device, torch.ones(1, dtype=dtype, device=device).dtype))

    @onlyCUDA
    def test_of_cuda(self, device):
        raise AssertionError

instantiate_device_type_tests(TestDevices, globals())

class Pair(TensorLikePair):
    def compare(self):
        self._compare_attributes(self.actual, self.expected)
        self._fail(AssertionError, "never") if self.actual.sum() > 5 else None

def metas(a, b):
    return [str(e.to_error()) for e in not_close_error_metas(a, b, pair_types=(NonePair, NumberPair, Pair))]
"""


@pytest.fixture
def program():
    compat.enable()
    try:
        names: dict = {"__name__": "a_test_module"}
        exec(compile(PROGRAM, "a_test_module.py", "exec"), names)
        yield names
    finally:
        compat.disable()


def outcome(*classes):
    result = unittest.TestResult()
    for each in classes:
        unittest.defaultTestLoader.loadTestsFromTestCase(each).run(result)
    return result


def test_cases_and_devices(program):
    names = unittest.defaultTestLoader.getTestCaseNames(program["TestCases"])
    assert names == ["test_equal", "test_product_n_1_word_a", "test_product_two_word_a"]
    assert "TestDevices" not in program
    devices = unittest.defaultTestLoader.getTestCaseNames(program["TestDevicesCPU"])
    assert devices == ["test_of_cuda_cpu", "test_of_dtype_cpu_float32", "test_of_dtype_cpu_float64"]
    result = outcome(program["TestCases"], program["TestDevicesCPU"])
    assert not result.failures + result.errors and len(result.skipped) == 1
    assert program["seen"] == [(1, "a"), (2, "a"), ("cpu", ts.float32), ("cpu", ts.float64)]


def test_pairs_of_ones_own(program):
    metas = program["metas"]
    assert metas([ts.ones(2), 1, None], [ts.ones(2), 1, None]) == []
    assert metas({"a": ts.full((2,), 3.0)}, {"a": ts.ones(2)}) == ["never\n\nThe failure occurred for item ['a']"]
    assert "dtype" in metas(ts.ones(2), ts.ones(2, dtype=ts.float64))[0]
    assert "None mismatch" in metas(None, 1)[0]
    with pytest.raises(AssertionError, match="length of the sequences"):
        metas([1], [1, 2])
    with pytest.raises(TypeError, match="No comparison pair"):
        metas("a", "a")


def test_tests_of_operators_are_made(program, tmp_path):
    definitions.define("made_tests::twice", "(Tensor x) -> Tensor")
    definitions.impl("made_tests::twice", "default", lambda x: x * 2)
    definitions.register_fake("made_tests::twice", lambda x: x.new_empty(x.shape[0] + 1))

    class Checked(program["TestCase"]):
        def test_call(self):
            self.assertEqual(ts.ops.made_tests.twice(ts.ones(2)), ts.full((2,), 2.0))

    program["optests"].generate_opcheck_tests(Checked, ["made_tests"], str(tmp_path / "none.json"))
    result = outcome(Checked)
    failed = [test._testMethodName for test, _ in result.failures + result.errors]
    assert result.testsRun == 5 and "test_faketensor__test_call" in failed
    known = tmp_path / "known.json"
    known.write_text('{"data": {"made_tests::twice": {"Again.test_faketensor__test_call": {"status": "xfail"}}}}')

    class Again(program["TestCase"]):
        def test_call(self):
            ts.ops.made_tests.twice(ts.ones(2))

    for handle in (ts.ops.made_tests.twice, program["torch"].ops.made_tests.twice.default):
        assert program["optests"].opcheck(handle, (ts.ones(2),), test_utils="test_schema") == {"test_schema": "SUCCESS"}
    program["optests"].generate_opcheck_tests(Again, ["made_tests"], str(known), test_utils=["test_faketensor"])
    assert outcome(Again).wasSuccessful()
