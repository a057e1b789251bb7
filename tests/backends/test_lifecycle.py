"""From entry point to device: what is loaded when, what each failure says, and that it harms nothing else."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

# Uses the device named "acme" and shows what happens; the rest of the framework goes on working.
USE_ACME = """
    try:
        print("device", ts.zeros(2, device="acme").device)
    except ts.BackendUnavailableError as error:
        print("error", error)
        print("cause", type(error.__cause__).__name__)
    assert (ts.ones(2) + 1).tolist() == [2, 2]
"""


def test_a_backend_is_imported_when_first_named(acme):
    with open(acme.folder / "acme_pkg.py", "a") as file:
        file.write("\nprint('imported')\n")
    out = acme.run(
        """
        print(backends.list(), backends.installed()["acme"], backends.get("acme", load=False).status)
        x = ts.ones(1)
        print("before")
        print(ts.zeros(2, device="acme:1").device, ts.zeros(1, device="acme").tolist())
        """
    )
    assert out.splitlines() == ["['acme', 'cpu'] acme-pkg 1.5 not loaded", "before", "imported", "acme:1 [0.0]"]


def test_what_is_known_about_a_backend(acme):
    out = acme.run(
        """
        backends.set_fallback("allow")
        info = backends.get("acme")
        print(info.name, info.vendor, info.version, info.package, info.package_version, info.device_count, info.status)
        print(info.source, info.reason, info.available, backends.why_unavailable("acme"))
        can = backends.capabilities("acme")
        print(can["kernels"], can["missing"] == ts._native._required_kernels(), can["max_ndim"], can["streams"])
        print([device["name"] for device in can["devices"]], "float64" in can["dtypes"], "complex64" in can["dtypes"])
        print((ts.ones(2, device="acme") + 1).tolist(), backends.fallbacks())
        """
    )
    lines = out.splitlines()
    assert lines[0] == "acme com.example.acme 1.2 acme-pkg 1.5 2 ready"
    assert lines[1].startswith("acme-pkg 1.5 (") and lines[1].endswith("libacme-pkg.so) None True None")
    assert lines[2] == "{} True 8 False"
    assert lines[3] == "['Acme 0', 'Acme 1'] True False"
    assert lines[4].startswith("[2.0, 2.0] {") and "pointwise" in lines[4]


FAILURES = {
    "raises on import": ("raise ImportError('no driver')", "ImportError: no driver", "ImportError"),
    "leaves the interpreter": ("import sys; sys.exit('not today')", "SystemExit: not today", "SystemExit"),
    "lacks a module": (
        "import acme_runtime",
        "install the missing Python module 'acme_runtime'",
        "ModuleNotFoundError",
    ),
    "has no such name": ("x = 1", "has no attribute 'library'", "AttributeError"),
    "fails when called": ("def library(): return 1 / 0", "ZeroDivisionError", "ZeroDivisionError"),
    "names no library": ("library = 3", "the path of a library", "TypeError"),
    "names a missing file": ("library = '/nowhere/lib.so'", "/nowhere/lib.so: No such file", "RuntimeError"),
    "uses itself": (
        "import tesserack; library = tesserack.ones(1, device='acme')",
        "uses its own device while it is being loaded",
        "BackendUnavailableError",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failing_packages(site, case):
    body, expected, cause = FAILURES[case]
    site.package("acme-pkg", body, backend="acme")
    out = site.run(USE_ACME)
    assert "error device: the backend 'acme' from acme-pkg 1.5" in out and expected in out and f"cause {cause}" in out


LIBRARIES = {
    "other ABI": (["-DABI_MAJOR=7"], "was built for ABI 7.x, this core speaks 2."),
    "newer ABI": (["-DABI_MINOR=99"], "needs ABI 2.99 or later"),
    "no entry": (["-DNO_ENTRY"], "does not export tesserack_backend"),
    "missing symbol": (["-DCALLS_DRIVER"], "undefined symbol: acme_driver_call"),
    "refuses": (["-DREFUSES"], "acme: the license has run out"),
}


@pytest.mark.parametrize("case", LIBRARIES)
def test_libraries_that_do_not_fit(site, library, case):
    options, expected = LIBRARIES[case]
    site.native("acme-pkg", library("acme", *options), "acme")
    out = site.run(USE_ACME)
    assert "acme-pkg 1.5" in out and expected in out and "cause RuntimeError" in out
    if "ABI" in case:
        assert "install a version of acme-pkg for ABI 2." in out


def test_a_library_of_another_name_takes_no_name(site, library):
    """It calls itself cpu: neither its own name nor the one it took is harmed."""
    site.native("acme-pkg", library("cpu"), "acme")
    out = site.run(USE_ACME + "\n    print(ts.ones(1).device, backends.get('cpu').package)")
    assert "calls itself 'cpu', but is announced as 'acme'" in out and "cpu tesserack-cpu" in out


def test_a_missing_library_that_it_needs(site, tmp_path, library):
    needed = tmp_path / "libacmedriver.so"
    source = tmp_path / "driver.c"
    source.write_text("void acme_driver_call(void) {}")
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", str(source), "-o", str(needed)], check=True)
    library = library("acme", "-DCALLS_DRIVER", "-Wl,--no-as-needed", str(needed))
    site.native("acme-pkg", library, "acme")
    needed.unlink()
    out = site.run(USE_ACME)
    assert "cannot open shared object file" in out and "install the library that is missing" in out


def test_no_hardware(site, library):
    site.native("acme-pkg", library("acme", "-DDEVICES=0"), "acme")
    out = site.run(
        USE_ACME
        + """
    print(backends.get("acme").status, "|", backends.get("acme").reason, "|", backends.why_unavailable("acme:1"))
    print(ts.acme.is_available(), ts.acme.device_count())
    import os
    os.environ["ACME_DEVICES"] = "1"
    os.putenv("ACME_DEVICES", "1")
    print(backends.why_unavailable("acme") is None)
    backends.reload("acme")
    print(ts.zeros(1, device="acme").device, ts.acme.device_count())
    """
    )
    assert "'acme' from acme-pkg 1.5" in out and "has no device: the acme driver is not loaded" in out
    assert out.splitlines()[-4:] == [
        out.splitlines()[-4],
        "False 0",
        "False",
        "acme:0 1",
    ]
    assert "no device | the acme driver is not loaded | device: backend 'acme'" in out


def test_two_packages_claim_a_name(acme, library):
    acme.native("other-pkg", library("acme"), "acme")
    acme.native("good-pkg", library("good"), "good")
    out = acme.run(USE_ACME + "\n    print(ts.zeros(1, device='good').device, backends.get('acme').status)")
    assert "the name 'acme' is claimed by acme-pkg 1.5 and other-pkg 1.5; uninstall one of them" in out
    assert out.splitlines()[-1] == "good:0 conflict"


def test_a_failure_is_remembered_until_reload(site, library):
    lib = library("acme")
    file = site.package("acme-pkg", "print('tried')\nraise RuntimeError('first')", backend="acme")
    out = site.run(
        f"""
        import pathlib
        for _ in range(3):
            try:
                ts.device("acme")
            except ts.BackendUnavailableError as error:
                print("first" in str(error), "backends.reload('acme')" in str(error), repr(error.__cause__))
        print(backends.get("acme").status, list(backends.failures()))
        pathlib.Path({str(file)!r}).write_text("library = {str(lib)!r}  # mended")
        print(backends.why_unavailable("acme") is None)
        backends.reload("acme")
        print(ts.zeros(1, device="acme").device, backends.failures())
        """
    )
    assert out.splitlines() == [
        "tried",
        *["True True RuntimeError('first')"] * 3,
        "failed ['acme']",
        "False",
        "acme:0 {}",
    ]


def test_a_replaced_library_is_loaded_anew(site, library):
    own = site.native("acme-pkg", library("acme", "-DABI_MAJOR=7"), "acme")
    out = site.run(
        f"""
        import shutil
        print("ABI 7" in backends.why_unavailable("acme"))
        shutil.copy({str(library("acme"))!r}, {str(own)!r} + ".new")
        import os
        os.replace({str(own)!r} + ".new", {str(own)!r})
        backends.reload("acme")
        print(ts.device("acme").type)
        """
    )
    assert out.splitlines() == ["True", "acme"]


def test_reload_finds_what_was_installed_since(site, library):
    lib = str(library("acme"))
    out = site.run(
        f"""
        import pathlib
        print(backends.list())
        folder = pathlib.Path({str(site.folder)!r})
        (folder / "late_pkg.py").write_text("library = {lib!r}")
        info = folder / "late_pkg-2.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: late-pkg\\nVersion: 2.0\\n")
        (info / "entry_points.txt").write_text("[tesserack.backends]\\nacme = late_pkg:library\\n")
        backends.reload("acme")
        print(backends.list(), ts.ones(1).acme().device)
        backends.reload("acme")
        """
    )
    assert out.splitlines() == ["['cpu']", "['acme', 'cpu'] acme:0"]


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 500, 4096, 8192, 0.3, 0.6, 0.9, 0.999])
def test_truncated_libraries(site, library, cut):
    own = site.native("acme-pkg", library("acme"), "acme")
    whole = own.read_bytes()
    own.write_bytes(whole[: cut if isinstance(cut, int) else int(len(whole) * cut)])
    out = site.run(USE_ACME)
    assert "error device: the backend 'acme'" in out and "try reinstalling acme-pkg" in out


@pytest.mark.parametrize("content", [b"<html>404</html>" * 100, b"\x7fELF" + b"\0" * 5000, b"\x7fELF\x02\x01\x01" * 99])
def test_files_that_are_no_libraries(site, library, content):
    site.native("acme-pkg", library("acme"), "acme").write_bytes(content)
    assert "error device: the backend 'acme'" in site.run(USE_ACME)


def test_a_library_with_a_hole(site, library):
    """Pages of zeros, as an interrupted copy leaves them, anywhere before the code."""
    own = site.native("acme-pkg", library("acme"), "acme")
    whole = own.read_bytes()
    program = """
        import pathlib
        whole = pathlib.Path({own!r}).read_bytes()
        for start in range(0, 4096, 512):
            path = f"{folder}/hole{{start}}.so"
            pathlib.Path(path).write_bytes(whole[:start] + bytes(min(512, len(whole) - start)) + whole[start + 512:])
            try:
                ts._native._load_backend(path, "acme", "")
                print("loaded")
                break
            except RuntimeError as error:
                print(str(error)[:60])
    """
    assert len(whole) > 4096
    assert site.run(program.format(own=str(own), folder=site.folder))


def test_a_folder_is_no_library(site):
    site.package("acme-pkg", f"import pathlib; library = pathlib.Path({str(site.folder)!r})", backend="acme")
    assert "it is no file" in site.run(USE_ACME)


def test_many_plugins_cost_nothing_at_import(site):
    for k in range(20):
        site.package(f"plugin-{k}", "raise SystemExit", backend=f"dev{k}", plugin=f"plug{k}")
    out = site.run(
        """
        import sys
        assert "importlib.metadata" not in sys.modules and "pluggy" not in sys.modules
        assert not any(name.startswith("plugin_") for name in sys.modules)
        print(len(backends.list()), backends.why_unavailable("dev7")[:40])
        """
    )
    assert out.startswith("21 device: the backend 'dev7'")


def test_plugins_off(acme, library):
    acme.native("rogue-pkg", library("cpu"), "cpu")
    program = """
        print(backends.list(), ts.ones(1).device, backends.get("cpu").package)
        print(backends.why_unavailable("acme"))
        print(ts.plugins.installed())
    """
    acme.package("extra-pkg", plugin="extra")
    lines = acme.run(program, TESSERACK_PLUGINS="off").splitlines()
    assert lines[0] == "['cpu'] cpu tesserack-cpu" and lines[2] == "{}"
    assert "no backend named 'acme' is installed (installed: cpu; TESSERACK_PLUGINS=off hides all others)" in lines[1]
    assert "claimed by" in acme.run("print(backends.why_unavailable('cpu'))")
    wrong = acme.start("-c", "import tesserack as ts; ts.ones(1)", TESSERACK_PLUGINS="maybe")
    assert "SettingError: TESSERACK_PLUGINS: expected 'on' or 'off', got 'maybe'" in wrong.stderr


def test_threads_load_a_backend_once(acme):
    with open(acme.folder / "acme_pkg.py", "a") as file:
        file.write("\nimport time\ntime.sleep(0.2)\nprint('imported')\n")
    out = acme.run(
        """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda k: str(ts.device(f"acme:{k % 2}")), range(16)))
        print(sorted(set(found)))
        """
    )
    assert out.splitlines() == ["imported", "['acme:0', 'acme:1']"]


DAMAGED = [
    "[tesserack.backends]\nno equals sign",
    "[[[\n=",
    "no section = x",
    "[tesserack.backends]\nodd = ::not a module",
]


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_metadata_hides_only_its_own_package(acme, text):
    for name in ("aaa", "zzz"):
        acme.package(f"{name}-pkg")
        (acme.folder / f"{name}_pkg-1.5.dist-info" / "entry_points.txt").write_text(text)
    (acme.folder / "aaa_pkg-1.5.dist-info" / "METADATA").unlink()
    assert "device acme:0" in acme.run(USE_ACME + "\n    backends.why_unavailable('odd')")
    done = acme.cli("doctor")
    assert "ok backend cpu" in done.stdout, done.stderr


def test_paths_may_be_path_objects(site, library):
    assert isinstance(library("acme"), pathlib.Path)
    body = f"from pathlib import Path\ndef library(): return Path({str(library('acme'))!r})"
    site.package("acme-pkg", body, backend="acme")
    assert "device acme:0" in site.run(USE_ACME)
