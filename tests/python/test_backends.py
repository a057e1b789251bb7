"""Finding and loading backends, and what is said when that fails."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tesserack as ts


def run(program: str, *, folder: Path | None = None, isolated: bool = False) -> str:
    """The output of a program in a new process; with ``folder`` first on its path, or without installed backends."""
    package = str(Path(ts.__file__).parent.parent)
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [str(folder) if folder else "", package])))
    prelude = "import importlib.metadata as m; m.entry_points = lambda **k: []\n" if isolated else ""
    done = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_list_and_installed() -> None:
    assert "cpu" in ts.backends.list() and ts.backends.installed()["cpu"].startswith("tesserack-cpu")
    assert ts.backends.why_unavailable("cpu") is None


def test_unknown_names() -> None:
    for text in ("nosuch", "nosuch:1"):
        with pytest.raises(
            ts.BackendUnavailableError,
            match=r"no backend named 'nosuch' is installed \(installed: .*cpu.*install the package that brings it",
        ):
            ts.ones(3, device=text)
    assert "nosuch" in str(ts.backends.why_unavailable("nosuch"))
    assert isinstance(ts.backends.why_unavailable("nosuch"), str) and "\n" not in str(
        ts.backends.why_unavailable("nosuch")
    )


@pytest.mark.parametrize("text", ["", ":", "cpu:", "cpu:x", "cpu:-1", "cpu:99999", ":0", "cpu:1:2"])
def test_malformed_names(text: str) -> None:
    with pytest.raises(RuntimeError):
        ts.device(text)


def test_devices_are_values() -> None:
    a, b = ts.device("cpu"), ts.device("cpu:0")
    assert a == b and hash(a) == hash(b) and a != ts.device("meta") and a != "cpu" and ts.device(a) == a
    assert ts.device("cpu", 0) == a and a.type == "cpu" and ts.device(type="cpu", index=0) == a
    for wrong in (0, None, 1.5, b"cpu"):
        with pytest.raises(TypeError):
            ts.device(wrong)
    with pytest.raises(RuntimeError):
        ts.device("cpu:0", 0)


def test_default_device_and_context() -> None:
    assert ts.get_default_device().type == "cpu"
    with ts.device("meta") as device:
        assert ts.ones(2).device == device
        with ts.device("cpu"):
            assert not ts.ones(2).is_meta
        assert ts.ones(2).is_meta
    assert not ts.ones(2).is_meta
    with pytest.raises(RuntimeError, match="not entered"):
        ts.device("cpu").__exit__(None, None, None)


def test_device_flags() -> None:
    assert ts.ones(1).is_cpu and not ts.ones(1, device="meta").is_cpu


def test_without_any_backend() -> None:
    out = run(
        """
        import tesserack as ts
        try:
            ts.ones(3)
        except ts.BackendUnavailableError as error:
            print(error)
        print(ts.backends.list(), ts.ones(3, device="meta").shape)
        """,
        isolated=True,
    )
    assert "pip install tesserack-cpu" in out and "[] tesserack.Size([3])" in out


def make_package(folder: Path, name: str, body: str, distribution: str = "broken-pkg") -> None:
    module = distribution.replace("-", "_")
    (folder / f"{module}.py").write_text(textwrap.dedent(body))
    info = folder / f"{module}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[tesserack.backends]\n{name} = {module}:library\n")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise ImportError('no driver')", "ImportError: no driver"),
        ("x = 1", "AttributeError"),
        ("library = lambda: '/nowhere/lib.so'", "/nowhere/lib.so"),
        ("library = lambda: 1 / 0", "ZeroDivisionError"),
    ],
)
def test_broken_packages_are_named_and_do_no_harm(tmp_path: Path, body: str, expected: str) -> None:
    make_package(tmp_path, "broken", body)
    out = run(
        """
        import tesserack as ts
        print(sorted(ts.backends.installed()))
        try:
            ts.ones(1, device="broken")
        except ts.BackendUnavailableError as error:
            print(error, "| cause:", type(error.__cause__).__name__)
        print(ts.ones(1).item())
        """,
        folder=tmp_path,
    )
    assert "broken-pkg 1.5" in out and expected in out and "reinstalling broken-pkg" in out and "1.0" in out


def test_two_packages_claiming_a_name(tmp_path: Path) -> None:
    make_package(tmp_path, "twice", "library = 1", "first-pkg")
    make_package(tmp_path, "twice", "library = 1", "second-pkg")
    out = run("import tesserack as ts; print(ts.backends.why_unavailable('twice'))", folder=tmp_path)
    assert "first-pkg 1.5" in out and "second-pkg 1.5" in out and "uninstall one" in out


def test_fallback_modes() -> None:
    before = ts.backends.get_fallback()
    for mode in ("allow", "error", "warn"):
        ts.backends.set_fallback(mode)
        assert ts.backends.get_fallback() == mode
    ts.backends.set_fallback(before)
    with pytest.raises(ValueError, match="'allow', 'warn', 'error'"):
        ts.backends.set_fallback("maybe")
    ts.backends.reset_fallbacks()
    assert ts.backends.fallbacks() == {}


def test_memory_statistics(device: ts.device) -> None:
    ts.reset_peak_memory_stats(device)
    before = ts.memory_allocated(device)
    x = ts.empty(1 << 20, dtype=ts.uint8, device=device)
    assert ts.memory_allocated(device) - before >= 1 << 20
    assert ts.max_memory_allocated(device) >= ts.memory_allocated(device)
    del x
    assert ts.memory_allocated(device) == before
    ts.empty_cache(device)
    assert {"allocated", "reserved", "allocated_peak"} <= ts.memory_stats(device).keys()
    ts.synchronize(device)
    assert ts.backends.properties(device)["name"]


def test_thread_counts() -> None:
    before = ts.get_num_threads()
    ts.set_num_threads(1)
    assert ts.get_num_threads() == 1
    ts.set_num_threads(before)
    with pytest.raises(ValueError, match="positive"):
        ts.set_num_threads(0)
