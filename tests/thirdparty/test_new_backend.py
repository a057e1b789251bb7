"""What ``tesserack new-backend`` writes passes the level *boots*, unedited."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tesserack.cli import main, new_backend

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
def test_it_boots(native, environment, skeleton, compiled):
    project = skeleton("fresh", native=native)
    library = compiled("tesserack_fresh", [*(project / "native").glob("*.cpp")]) if native else None
    environment.install(project, library)
    done = environment.run("-m", "tesserack.testing.conform", "fresh", "--level", "boots", "--quick")
    assert done.returncode == 0 and "level: boots" in done.stdout, done.stdout + done.stderr


def test_the_required_kernels_train_the_digits_model(environment, skeleton, compiled):
    """A backend of only the required entry points, and not one call on the cpu."""
    pytest.importorskip("sklearn", reason="the scans come with scikit-learn")
    project = skeleton("fresh", native=True)
    environment.install(project, compiled("tesserack_fresh", [*(project / "native").glob("*.cpp")]))
    done = environment.run(str(ROOT / "examples" / "digits.py"), "--device", "fresh", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^fallbacks +none$", done.stdout, re.MULTILINE)
    assert float(re.findall(r"^test accuracy +([\d.]+)%", done.stdout, re.MULTILINE)[0]) > 85
    assert re.search(r"predicts the same", done.stdout)


def test_python_kernels_are_the_reference_ones():
    """One text: after the head, which is each package's own, they are the same to the letter."""
    marker = "# --- tensors as arrays"
    template = (new_backend.TEMPLATES / "python" / "package" / "__init__.py.in").read_text()
    reference = (ROOT / "plugins" / "reference" / "tesserack_reference" / "__init__.py").read_text()
    same = template.partition(marker)[2] == reference.partition(marker)[2] != ""
    assert same, f"copy what follows {marker!r} from plugins/reference into the template"


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
def test_the_package(native, tmp_path):
    written = new_backend.write("my_npu2", tmp_path / "out", native=native, vendor="com.npu")
    assert sorted(written) == sorted(file for file in (tmp_path / "out").rglob("*") if file.is_file())
    names = {str(file.relative_to(tmp_path / "out")) for file in written}
    expected = {"pyproject.toml", "README.md", "LICENSE", ".gitignore", "expected_failures.txt"}
    expected |= {"tests/test_conformance.py", "src/tesserack_my_npu2/__init__.py"}
    assert expected <= names and ("CMakeLists.txt" in names) == native
    for file in written:
        text = file.read_text()
        assert not re.search(r"\$\{?name|\$vendor|\$version|\$core", text, re.IGNORECASE), file
        if file.suffix == ".py":
            compile(text, str(file), "exec")
    assert 'my_npu2 = "tesserack_my_npu2:' in (tmp_path / "out" / "pyproject.toml").read_text()
    assert any("com.npu" in file.read_text() for file in written)


def test_python_is_clean(tmp_path):
    """Authors start from code that linters accept."""
    pytest.importorskip("ruff", reason="linters are an extra")
    for native in (False, True):
        new_backend.write("fresh", tmp_path / str(native), native=native)
    for command in (["check"], ["format", "--check", "--line-length", "120"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--no-cache", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Acme", "lower-case letters, digits and underscores, such as 'acme', got 'Acme'"),
        ("my-npu", "got 'my-npu'"),
        ("1st", "got '1st'"),
        ("_npu", "got '_npu'"),
        ("", "got ''"),
        ("../up", "got '../up'"),
        ("gerät", "got 'gerät'"),
        ("meta", "'meta' is built in"),
        ("cpu", "'cpu' is taken by tesserack-cpu"),
        ("class", "a word of Python's"),
    ],
)
def test_names_are_checked(name, reason, tmp_path, capsys):
    assert main(["new-backend", "--output", str(tmp_path / "out"), "--", name]) == 2
    assert reason in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_folders_are_not_overwritten(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "fresh"]) == 0
    said = capsys.readouterr().out
    assert "tesserack-fresh" in said and "pip install " in said and "conform fresh --level boots" in said
    assert main(["new-backend", "fresh"]) == 2
    assert "expected a new or empty folder, got tesserack-fresh" in capsys.readouterr().err
