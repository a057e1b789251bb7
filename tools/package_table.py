"""How far packages written for PyTorch go: their own tests on the cpu, with torch and with Tesserack in its place.

    python tools/package_table.py fetch [NAME ...]   source packages and wheels into build/packages
    python tools/package_table.py run [NAME ...]     their tests on both; counts into docs/guide/packages.json
    python tools/package_table.py count [NAME ...]   the counts again, from what the last runs left
    python tools/package_table.py page [--check]     docs/guide/packages.md from the counts

``fetch`` and ``run`` need a network, and torch beside Tesserack in the environment that runs them; ``page`` needs none.
What torch fails, such as tests that want a network or a card, counts for nobody.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from packages.suites import SUITES, Suite

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "guide" / "packages.json"
PAGE = ROOT / "docs" / "guide" / "packages.md"
WORK = ROOT / "build" / "packages"
PYTHON = WORK / "venv" / "bin" / "python"
HEAD = """\
# Packages written for PyTorch

Each package's own tests on the cpu: how many of those that pass with torch {torch} pass with Tesserack in its place, as
`tesserack run -m pytest` puts it there. `tools/package_table.py` fetches the packages, runs the tests and writes this
page. Tests that want a network, a card or another package that is not there fail with torch too and count for nobody;
so do tests longer than {slow} s, and those that torch had not reached when its run was stopped, most after 15 minutes.
Where the source package ships no tests, the examples of its documentation are run; x-transformers, torchdiffeq,
torchinfo and jaxtyping ship neither, and safetensors no source that installs without Rust.
{share}
| Package | Version | Tests | Of torch's passes | | Tried | What is missing |
|---|---|---|---:|---:|---|---|
"""
SLOW = 60
SHARED = '"1 in 4" is a quarter of the tests, chosen by a checksum of their names; "(part 1)" is the second quarter.'


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fetch", "run", "count", "page"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="page: compare with it, change nothing")
    parser.add_argument("--seconds", type=int, default=900, help="run: the limit for one suite on one side")
    parser.add_argument("--share", type=int, help="run: one test in so many, and count nothing")
    parser.add_argument("--part", type=int, help="run: which of the shares, from 0, and count nothing")
    parser.add_argument("--ours", action="store_true", help="run: use what torch passed the last time")
    parser.add_argument("--failed", action="store_true", help="run: only what failed here the last time; count nothing")
    options = parser.parse_args()
    suites = [suite for suite in SUITES if not options.names or suite.package in options.names]
    if options.what == "page":
        return _page(options.check)
    (WORK / "results").mkdir(parents=True, exist_ok=True)
    for suite in suites:
        if options.what == "fetch":
            _fetch(suite)
        elif options.what == "run":
            _run(suite, options)
        else:
            _count(suite, True)
    return 0


# --- packages ------------------------------------------------------------------------------------------------------


def _fetch(suite: Suite) -> None:
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", WORK / "venv"], check=True)
        # What this environment has, torch and Tesserack among it, stands behind what is installed there.
        here = [path for path in sys.path if path.endswith("site-packages")]
        lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in here)
        place = subprocess.check_output([PYTHON, "-c", "import site; print(site.getsitepackages()[0])"], text=True)
        (Path(place.strip()) / "zz_tesserack.pth").write_text(lines)
    limits = WORK / "constraints.txt"
    names = ("torch", "numpy", "scikit-learn", "pytest")
    limits.write_text("".join(f"{name}=={importlib.metadata.version(name)}\n" for name in names))
    pip: list[str | Path] = [PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wanted = (suite.package, *suite.needs, "pytest-timeout")
    done = subprocess.run([*pip, "install", "-c", limits, *wanted], check=False)
    if done.returncode == 0 and suite.tests:
        source = ["download", "--no-deps", "--no-binary", suite.package, f"{suite.package}=={_version(suite)}"]
        done = subprocess.run([*pip, *source, "-d", WORK / "source"], check=False)
        for archive in (WORK / "source").glob("*.tar.gz"):
            folder = archive.with_name(archive.name.removesuffix(".tar.gz"))
            if not folder.exists():
                with tarfile.open(archive) as file:
                    file.extractall(WORK / "source", filter="data")
    print(f"{suite.package}: {'fetched' if done.returncode == 0 else 'not fetched'}", flush=True)


def _version(suite: Suite) -> str:
    ask = f"import importlib.metadata as m; print(m.version({suite.package!r}))"
    return subprocess.check_output([PYTHON, "-c", ask], text=True).strip()


def _folder(suite: Suite) -> Path:
    """Where the source package lies; the installed one serves for examples."""
    if not suite.tests:
        return WORK
    wanted = f"{suite.package}-{_version(suite)}".lower().replace("_", "-")
    return next(path for path in (WORK / "source").iterdir() if path.name.lower().replace("_", "-") == wanted)


# --- tests ---------------------------------------------------------------------------------------------------------


def _run(suite: Suite, options: Any) -> None:
    share = (options.share or suite.share, suite.part if options.part is None else options.part)
    theirs = WORK / "results" / f"{suite.package}.torch"
    ours = WORK / "results" / f"{suite.package}.tesserack"
    if not options.ours and not options.failed:
        _pytest(suite, theirs, [], share, options.seconds)
    passed = {test for test, row in _outcomes(theirs).items() if row["outcome"] == "passed"}
    wanted = WORK / "results" / f"{suite.package}.only"
    if options.failed:
        passed -= {test for test, row in _outcomes(ours).items() if row["outcome"] == "passed"}
        ours = ours.with_suffix(".again")
    wanted.write_text("\n".join(sorted(passed)))
    # Files that torch cannot collect are not collected here either.
    start = ["-m", "tesserack", "run", *(["--torch-random"] if suite.draws else [])]
    _pytest(suite, ours, start, share, options.seconds, wanted)
    _count(suite, options.share is None and options.part is None and not options.failed, ours)


def _count(suite: Suite, keep: bool, ours: Path | None = None) -> None:
    """Compare what two runs left; ``keep`` writes it down."""
    results = WORK / "results"
    ours = ours or results / f"{suite.package}.tesserack"
    passed = {*(results / f"{suite.package}.only").read_text().splitlines()}
    rows = _outcomes(ours)
    reached = {test for test in passed if rows.get(test, {}).get("outcome") == "passed"}
    causes = collections.Counter(_cause(rows, test) for test in passed - reached)
    print(f"{suite.package} {_version(suite)}: {len(reached)} of {len(passed)}", flush=True)
    for cause, count in causes.most_common(12):
        print(f"  {count:4} {cause}")
    if not keep:
        return
    data = json.loads(DATA.read_text()) if DATA.exists() else {}
    data[suite.package] = {
        "version": _version(suite),
        "tests": suite.what,
        "torch": importlib.metadata.version("torch").partition("+")[0],
        "torch_passed": len(passed),
        "passed": len(reached),
        "date": datetime.datetime.fromtimestamp(ours.stat().st_mtime, datetime.timezone.utc).date().isoformat(),
        "causes": {_without_place(cause): count for cause, count in causes.most_common(3)},
    }
    DATA.write_text(json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def _without_place(cause: str) -> str:
    """A missing name without the folder where it was used."""
    return cause.partition("; it was taken at")[0].removeprefix("tesserack.compat._missing.")


def _pytest(
    suite: Suite, results: Path, start: list[str], share: tuple[int, int], seconds: int, only: Path | None = None
) -> None:
    results.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "tools" / "packages"),
        "PACKAGE_RESULTS": str(results),
        "PACKAGE_SHARE": str(share[0]),
        "PACKAGE_PART": str(share[1]),
        "PACKAGE_ONLY": str(only or ""),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        **suite.environment,
    }
    words = ["-m", "pytest", "-q", "-p", "recorder", "-p", "pytest_timeout", "-p", "no:cacheprovider", "-o", "addopts="]
    words += ["--timeout", str(SLOW), "--continue-on-collection-errors", "--tb=short", *suite.options]
    if suite.without:
        words += ["-k", "not (" + " or ".join(suite.without) + ")"]
    if suite.doctests or not _configured(_folder(suite)):
        (WORK / "pytest.ini").write_text("[pytest]\n")  # no setting of a folder above
        words += ["-c", str(WORK / "pytest.ini"), "--rootdir", str(_folder(suite))]
    if suite.doctests:
        words += ["--doctest-modules", "--doctest-continue-on-failure", "--pyargs", suite.module]
    with results.with_name(results.name + ".log").open("w") as log:
        command = [str(PYTHON), *start, *words, *suite.tests]
        try:
            subprocess.run(
                command, cwd=_folder(suite), env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            log.write(f"\nstopped after {seconds} s\n")
            print(f"{suite.package}: {results.suffix[1:]} stopped after {seconds} s", flush=True)


def _configured(folder: Path) -> bool:
    """Whether a source package says itself how pytest runs there."""
    marks = {"pytest.ini": "", "pyproject.toml": "[tool.pytest", "setup.cfg": "[tool:pytest]", "tox.ini": "[pytest]"}
    files = {name: folder / name for name in marks}
    return any(path.exists() and marks[name] in path.read_text("utf-8") for name, path in files.items())


def _outcomes(results: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in results.read_text("utf-8").splitlines() if results.exists() else []:
        row = json.loads(line)
        before = found.get(row["test"])
        if before is None or before["outcome"] in ("started", "passed"):
            found[row["test"]] = row
    return found


def _cause(rows: dict[str, dict[str, Any]], test: str) -> str:
    row = rows.get(test)
    if row is None:
        file = rows.get(test.partition("::")[0])
        return f"not collected: {_short(file['why'])}" if file else "not reached"
    if row["outcome"] == "started":
        return "ended the process"
    return _short(row["why"]) or str(row["outcome"])


def _short(why: str) -> str:
    return " ".join(why.split())[:160]


# --- the page ------------------------------------------------------------------------------------------------------


def _page(check: bool) -> int:
    text = page(json.loads(DATA.read_text()))
    if not check:
        PAGE.write_text(text)
        return 0
    if PAGE.read_text() == text:
        return 0
    print(f"{PAGE.name} is out of date: run tools/package_table.py page")
    return 1


def page(data: dict[str, Any]) -> str:
    """The text of the page."""
    rows = []
    for name, row in sorted(data.items(), key=lambda item: item[0].lower()):
        percent = 100 * row["passed"] / max(row["torch_passed"], 1)
        counts = f"{row['passed']} of {row['torch_passed']}"
        missing = row.get("missing") or "; ".join(f"{_plain(c)} ({n})" for c, n in _most(row["causes"]))
        rows.append(
            f"| {name} | {row['version']} | {row['tests']} | {counts} | {percent:.1f} % | {row['date']} | {missing} |"
        )
    versions = sorted({row["torch"] for row in data.values()})
    share = SHARED + "\n" if any("1 in" in row["tests"] for row in data.values()) else ""
    return HEAD.format(torch=", ".join(versions), slow=SLOW, share=share) + "\n".join(rows) + "\n"


def _most(causes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(causes.items(), key=lambda item: (-item[1], item[0]))[:3]


def _plain(cause: str) -> str:
    cut = cause if len(cause) <= 90 else cause[:87] + "..."
    return "`" + cut.replace("|", "/").replace("`", "'") + "`"


if __name__ == "__main__":
    sys.exit(main())
