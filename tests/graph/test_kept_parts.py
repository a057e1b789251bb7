"""What a card's compiler made, kept on disk: a second process compiles nothing, and runs nothing of other parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

reference = pytest.importorskip("tesserack_reference", reason="needs the reference backend, which make test installs")

HERE = Path(__file__).parent
# Where this process has the reference backend from, which other tests take from its folder where it is not installed.
FOUND = os.pathsep.join([str(Path(reference.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
# A device whose compiler knows one instruction; what it made is its name and number, in as many bytes as asked.
CARD = """
import json, os, sys, warnings
import numpy as np, tesserack as ts, tesserack_reference as reference
from tesserack import _native

FUNCTIONS = {"mul": np.multiply}


class Keeping(reference.Reference):
    name, vendor = "keeping", "org.tesserack.tests.keeping"
    version = os.environ.get("CARD_VERSION", "1")

    def __init__(self):
        super().__init__()
        self._kernels = dict(reference.backend._kernels)
        self.compiled = self.loaded = self.refused = 0

    def claim(self, device, graph):
        return [graph.nodes]

    def compile_part(self, device, part):
        self.compiled += 1
        (node,) = part.nodes
        ((name, *_),) = node.program.instructions
        return self.function([name, float(node.inputs[1])])

    def function(self, made):
        def run(*, outputs, inputs):
            name, number = made
            reference.view(outputs[0])[...] = FUNCTIONS[name](reference.view(inputs[0]), number)

        run.made = made
        return run

    def serialize_part(self, device, function):
        if os.environ.get("CARD_FAILS"):
            raise {"error": RuntimeError, "interrupt": KeyboardInterrupt}[os.environ["CARD_FAILS"]]("no room for this")
        if os.environ.get("CARD_KEEPS_TEXT"):
            return "text"
        if os.environ.get("CARD_KEEPS_NOT"):
            return NotImplemented
        return json.dumps([function.made, "." * int(os.environ.get("CARD_BYTES", "0"))]).encode()

    def deserialize_part(self, device, data):
        if os.environ.get("CARD_DRIVER"):
            self.refused += 1
            if os.environ["CARD_DRIVER"] == "broken":
                raise ValueError("not code of mine")
            if os.environ["CARD_DRIVER"] == "silent":
                return None
            return NotImplemented
        self.loaded += 1
        return self.function(json.loads(data)[0])


card = Keeping()
_native._register_python_backend(card, "a test")
factor, size = float(sys.argv[1]), int(sys.argv[2])
run = ts.jit.trace(lambda x: x * factor, ts.ones(size).to("keeping"), check_trace=False)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    results = [run(ts.full((size,), float(k)).to("keeping")).tolist() for k in range(4)]
assert results == [[k * factor] * size for k in range(4)], results
print(json.dumps([card.compiled, card.loaded, card.refused, [str(w.message) for w in told]]))
"""


def process(cache: Path, factor: float = 2.0, size: int = 3, **environment: str) -> tuple[int, int, int, list[str]]:
    """How many parts a new process compiled, loaded and refused to load, and what it warned of."""
    variables = {**os.environ, "PYTHONPATH": FOUND, "TESSERACK_KERNEL_CACHE": str(cache), **environment}
    command = [sys.executable, "-c", CARD, str(factor), str(size)]
    ran = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300, cwd=HERE)
    assert ran.returncode == 0, ran.stderr
    told: Any = json.loads(ran.stdout.splitlines()[-1])
    return told[0], told[1], told[2], told[3]


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    assert process(tmp_path) == (1, 0, 0, [])
    assert process(tmp_path) == (0, 1, 0, [])
    # Another number, size or version is another part.
    assert process(tmp_path, factor=3.0) == (1, 0, 0, [])
    assert process(tmp_path, size=4) == (1, 0, 0, [])
    assert process(tmp_path, CARD_VERSION="2") == (1, 0, 0, [])
    assert process(tmp_path) == (0, 1, 0, [])
    # Data of another driver, which the card does not take, whatever way it says so: compiled, and kept anew.
    for driver in ("new", "broken", "silent"):
        assert process(tmp_path, CARD_DRIVER=driver) == (1, 0, 1, [])


def test_more_bytes_than_the_core_offers_at_first(tmp_path: Path) -> None:
    assert process(tmp_path, CARD_BYTES="200000") == (1, 0, 0, [])
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) > 200_000
    assert process(tmp_path, CARD_BYTES="200000") == (0, 1, 0, [])


def test_what_is_damaged_is_compiled_again(tmp_path: Path) -> None:
    assert process(tmp_path)[0] == 1
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert process(tmp_path) == (1, 0, 0, [])
    assert process(tmp_path) == (0, 1, 0, [])


def test_what_cannot_be_kept_still_runs(tmp_path: Path) -> None:
    assert process(tmp_path, CARD_KEEPS_NOT="1") == (1, 0, 0, [])
    compiled, loaded, _, told = process(tmp_path, CARD_FAILS="error")
    assert (compiled, loaded) == (1, 0) and "'keeping' could not write down a part" in told[0] and "no room" in told[0]
    (told,) = process(tmp_path, CARD_KEEPS_TEXT="1")[3]
    assert "serialize_part: expected bytes or NotImplemented, got str" in told
    nowhere = process(Path("/proc/nowhere"))
    assert nowhere == (1, 0, 0, [])
    assert process(tmp_path, TESSERACK_KERNEL_CACHE="") == (1, 0, 0, [])


def test_an_interruption_while_it_is_kept_is_told(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": FOUND, "TESSERACK_KERNEL_CACHE": str(tmp_path), "CARD_FAILS": "interrupt"}
    command = [sys.executable, "-c", CARD, "2", "3"]
    variables = {**os.environ, **environment}
    ran = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300, cwd=HERE)
    assert ran.returncode and "KeyboardInterrupt" in ran.stderr


def test_one_half_of_keeping_is_refused() -> None:
    from tesserack import _native
    from tesserack_reference import Reference

    class Half(Reference):
        name, vendor = "halfkeeper", "org.tesserack.tests.halfkeeper"

        def claim(self, device: int, graph: Any) -> Any: ...
        def compile_part(self, device: int, part: Any) -> Any: ...
        def serialize_part(self, device: int, function: Any) -> Any: ...

    with pytest.raises(RuntimeError, match=r"serialize.*deserialize"):
        _native._register_python_backend(Half(), "a test")
