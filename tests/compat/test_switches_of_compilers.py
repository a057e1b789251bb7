"""``torch._dynamo.config.patch`` and what marks tensors and classes, as programs and their tests use them."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def _runs(text: str, tmp_path) -> str:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(text))
    found = subprocess.run(
        [sys.executable, "-m", "tesserack", "run", str(file)], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_a_class_of_tests_stays_one_and_runs_with_other_switches(tmp_path):
    text = """
    import unittest
    import torch
    from torch._dynamo import config

    @config.patch(assume_static_by_default=False)
    class Tests(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            cls.seen = config.assume_static_by_default

        def test_switch(self):
            self.assertFalse(config.assume_static_by_default or self.seen)

    @config.patch("verbose", True)
    def nested(n):
        return config.verbose if n == 0 else nested(n - 1)

    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Tests).run(found)
    print(Tests.__name__, found.testsRun, found.wasSuccessful(), config.assume_static_by_default)
    print(nested(3), config.verbose)
    """
    assert _runs(text, tmp_path) == "Tests 1 True True\nTrue False\n"


def test_a_class_of_modules_that_is_marked_stays_one(tmp_path):
    text = """
    import torch

    @torch._dynamo.mark_static
    class Layer(torch.nn.Module):
        def forward(self, x):
            return x + 1

    print(torch.compile(Layer())(torch.ones(1)).item())
    """
    assert _runs(text, tmp_path) == "2.0\n"


def test_a_run_that_is_captured_is_told_so_by_the_older_name_too(tmp_path):
    text = """
    import torch

    def told():
        return torch.ones(2) if torch._utils.is_compiling() else torch.zeros(2)

    print(told().sum().item(), torch.compile(told, backend="eager")().sum().item())
    """
    assert _runs(text, tmp_path) == "0.0 2.0\n"
