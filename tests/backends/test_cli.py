"""The command line: what it prints, its exit status, and that it ends without tracebacks."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack as ts
from tesserack import cli
from tesserack.cli import devices
from tesserack.cli import ops as ops_command
from tesserack.cli._checks import settings
from tesserack.plugins import Finding
from tesserack.utils import environment as _environment
from tesserack.utils._results import size_text

ROOT = Path(__file__).resolve().parents[2]


def test_help_names_every_command_and_imports_none(site):
    done = site.cli("--help")
    assert done.returncode == 0 and all(name in done.stdout for name in cli.COMMANDS)
    # Without this environment's own packages, among which may be a plugin.
    alone = "import sys\nsys.path[:] = [folder for folder in sys.path if not folder.endswith('site-packages')]\n"
    program = alone + "import tesserack.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    modules = site.start("-c", program).stdout.splitlines()[-1].split()
    assert "tesserack.cli" in modules
    slow = {"pluggy", "rich", "numpy", "importlib.metadata", "email", "inspect", "subprocess", "asyncio"}
    assert not {"tesserack.cli.devices", "tesserack.plugins", "tesserack_cpu", *slow} & {*modules}


@pytest.mark.parametrize("archived", (False, True))
def test_help_lists_commands_of_plugins(site, archived):
    """Wherever they lie: what --help asks before it loads anything overlooks none."""
    body = "def tesserack_commands(subparsers):\n    subparsers.add_parser('polish', help='polish the rack')\n"
    file = site.package("polish-pkg", body, plugin="polish")
    if not archived:
        assert "polish the rack" in site.cli("--help").stdout
        return
    archive = shutil.make_archive(str(site.folder.parent / "packages"), "zip", site.folder)
    shutil.rmtree(site.folder)
    file.parent.mkdir()
    program = f"import sys; sys.path.append({archive!r}); import tesserack.cli as c; c.main(['--help'])"
    assert "polish the rack" in site.start("-c", program).stdout


def test_commands_that_come_with_other_packages_say_which(site):
    for name, (package, extra) in cli.BROUGHT.items():
        done = site.cli(name, "model.py:build")
        assert done.returncode == 2 and package in done.stderr and f"pip install 'tesserack[{extra}]'" in done.stderr


def test_the_conformance_kit_takes_its_own_options(site):
    done = site.cli("conform", "--help")
    assert done.returncode == 0 and "--expected-failures" in done.stdout
    assert site.cli("conform", "nosuch").returncode == 2


def test_version_and_no_command(site):
    assert site.cli("--version").stdout == f"tesserack {ts.__version__}\n"
    done = site.cli()
    assert done.returncode == 2 and "COMMAND" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["ops", "--nosuch"],
        ["explain"],
        ["run"],
        ["run", "/nowhere.py"],
        ["run", "-x", "a"],
        ["run", "--device"],
        ["explain", "nosuch"],
    ],
)
def test_wrong_usage(site, arguments):
    done = site.cli(*arguments)
    assert done.returncode == 2 and "error:" in done.stderr and "Traceback" not in done.stderr


def test_memory_of_a_device_is_said_as_far_as_it_is_known():
    gib = 1 << 30
    sizes = ((0, 0), (gib, 0), (gib, gib))
    said = [devices._device(0, {"name": "x", "total_memory": total, "free_memory": free}) for total, free in sizes]
    assert said == ["0: x", "0: x, 1.0 GiB", "0: x, 1.0 GiB free of 1.0 GiB"]


def test_devices(acme, library):
    acme.native("empty-pkg", library("empty", "-DDEVICES=0"), "empty")
    acme.package("broken-pkg", "raise OSError('no luck')", backend="broken")
    done = acme.cli("devices")
    assert done.returncode == 0
    table = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "acme-pkg 1.5" in table["acme"] and "Acme 0, 512.0 MiB free of 1.0 GiB, 1: Acme 1" in table["acme"]
    assert "0 kernels; lacks copy_cast" in table["acme"] and "ready" in table["cpu"]
    assert "no device" in table["empty"] and "the acme driver is not loaded" in table["empty:"]
    assert "failed" in table["broken"] and "OSError: no luck" in table["broken:"]
    records = {record["name"]: record for record in json.loads(acme.cli("devices", "--json").stdout)}
    assert records["acme"]["capabilities"]["device_count"] == 2 and records["broken"]["status"] == "failed"
    one = acme.cli("devices", "acme")
    assert one.returncode == 0 and "com.example.acme" in one.stdout and "max ndim  8" in one.stdout
    assert acme.cli("devices", "empty").returncode == 1 and acme.cli("devices", "broken").returncode == 1
    unknown = acme.cli("devices", "nosuch")
    assert unknown.returncode == 1 and "no backend named 'nosuch' is installed" in unknown.stderr
    assert "not loaded" in acme.cli("devices", "--no-load").stdout
    done = acme.cli("devices", TESSERACK_PLUGINS="perhaps")
    assert done.returncode == 1 and "expected 'on' or 'off'" in done.stderr and "Traceback" not in done.stderr


CARD = """
import os
from tesserack.backends import Backend
class Card(Backend):
    name, vendor = {name!r}, "com.example.{name}"
    def probe(self):
        return {probe}
    def properties(self, device):
        {properties}
library = Card()
{end}
"""


def test_broken_cards_leave_the_others_to_be_told(acme):
    """One whose properties raise, one whose probe lies, one whose import ends the process."""
    cards = {
        "shy": {"properties": "raise OSError('no answer')"},
        "many": {"probe": "10**12"},
        "odd": {"probe": "'two'"},
        "liar": {"probe": "2", "properties": "return {'name': ['one'][device]}"},
        "gone": {"end": "print('{}'); os._exit(0)"},
        "dead": {"end": "os.abort()"},
    }
    for name, parts in cards.items():
        given = {"probe": "1", "properties": "return {}", "end": "", **parts}
        acme.package(f"{name}-pkg", CARD.format(name=name, **given), backend=name)
    done = acme.cli("devices")
    assert done.returncode == 0 and "Traceback" not in done.stdout + done.stderr
    table = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "ready" in table["cpu"] and "ready" in table["acme"]
    assert "failed" in table["shy"] and "OSError: no answer" in table["shy:"]
    assert "no device" in table["many"] and "told 1000000000000 devices" in table["many:"]
    assert "no device" in table["odd"] and "probe() raised TypeError" in table["odd:"]
    assert "failed" in table["liar"] and "IndexError" in table["liar:"]
    assert "crashed" in table["gone"] and "ended the process (exit status 0)" in table["gone:"]
    assert "crashed" in table["dead"] and "SIGABRT" in table["dead:"]
    records = {record["name"]: record for record in json.loads(acme.cli("devices", "--json").stdout)}
    assert records["dead"]["status"] == "crashed" and records["acme"]["capabilities"]["device_count"] == 2
    assert acme.cli("devices", "dead").returncode == 1
    doctor = {f["subject"]: f for f in json.loads(acme.cli("doctor", "--json").stdout)["findings"]}
    assert "OSError: no answer" in doctor["backend shy"]["message"] and doctor["backend acme"]["level"] != "error"


def test_a_card_that_never_answers(acme, monkeypatch):
    """It is ended, and what it started with it, even where that holds on to its output."""
    acme.package("slow-pkg", "import os, time\nos.fork()\ntime.sleep(600)", backend="slow")
    program = "from tesserack.cli._checks import backends as b; b._SECONDS = 2; print(b.probe('slow').record['status'])"
    assert acme.run(program).split() == ["hung"]


def test_ops(acme):
    listed = acme.cli("ops").stdout
    assert "matmul(Tensor self, Tensor other) -> Tensor" in listed and "pointwise" in listed
    assert len(json.loads(acme.cli("ops", "--json").stdout)) > 300
    required = json.loads(acme.cli("ops", "--required", "--json").stdout)
    assert [row["kernel"] for row in required] == ts._native._required_kernels()
    done = acme.cli("ops", "--device", "cpu")
    assert done.returncode == 0 and re.search(r"softmax +kernel", done.stdout)
    done = acme.cli("ops", "--device", "acme")
    assert done.returncode == 1 and "missing: falls back to the cpu" in done.stdout
    assert re.search(r"softmax +decomposes", done.stdout)


def test_required_kernels_are_those_without_which_operators_fail():
    """The list is what operators launch with run_required; every other kernel has a decomposition, but factorisations,
    which lie outside it: theirs are asked for the same way, and fall back to the cpu."""
    native = ROOT / "core" / "native"
    launched = set()
    everything = "".join(path.read_text() for path in [*native.glob("**/*.cpp"), *native.glob("**/*.h")])
    names = dict(re.findall(r"\b(k\w+)\(\"(\w+)\"\)", everything))
    declared = native / "ops" / "common" / "kernel_call.cpp"  # launches what declarations name
    for path in [*{*native.glob("ops/**/*.cpp")} - {declared}, native / "dispatch" / "launch_copies.cpp"]:
        text = path.read_text()
        names |= dict(re.findall(r"\b(k\w+)\(\"(\w+)\"\)", text))
        for statement in text.split("run_required")[:-1]:
            found = re.findall(r"Launch(?: \w+)?\((k\w+),", statement)
            launched.add(names[found[-1]])
    launched = {name for name in launched if not name.startswith("lapack_")}
    whole = {r["kernel"]["name"] for r in ts._native._operators() if r["kernel"] and not r["decomposes"]}
    assert whole == {
        "fft_rows",  # asked for where a card has it alone
        *(name for kernel in ("ctc_loss", "grid_sample") for name in (kernel, f"{kernel}_backward")),
    }
    assert launched == {*ts._native._required_kernels()} == {*ops_command.REQUIRED}


def test_explain(acme):
    text = acme.cli("explain", "softmax", "--requires-grad").stdout
    assert "Autograd" in text and "cpu: the kernel 'softmax'; if it declines, the decomposition" in text
    assert "operand self: contiguous result" in text and "parameter dim wrapped self" in text
    assert "otherwise made of amax sub exp sum.dim div" in text
    text = acme.cli("explain", "softmax", "--device", "acme", TESSERACK_DEVICE="cpu").stdout
    assert "acme: the decomposition: the backend has no kernel 'softmax'" in text
    told = json.loads(acme.cli("explain", "relu", "--device", "acme", "--json", TESSERACK_DEVICE="cpu").stdout)
    assert told["device"] == "acme:0" and any(step.startswith("acme") for step in told["path"])
    assert acme.cli("explain", "relu", "--device", "meta").returncode == 0


def test_run(acme):
    script = acme.folder / "train.py"
    script.write_text(
        "import sys, helper, tesserack as ts\n"
        "print(ts.get_default_device(), sys.argv[1:], __name__, helper.x)\n"
        "sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 0)\n"
    )
    (acme.folder / "helper.py").write_text("x = 1")

    def shown(*arguments):
        return acme.cli("run", *arguments).stdout.strip()

    path = str(script)
    assert shown(path) == "cpu [] __main__ 1"
    assert shown(path, "--device", "acme:1") == "acme:1 [] __main__ 1"
    assert shown("--device", "acme", path, "a", "-b") == "acme:0 ['a', '-b'] __main__ 1"
    assert shown(path, "--device=acme", "x", "--device", "y") == "acme:0 ['x', '--device', 'y'] __main__ 1"
    assert shown(path, "--", "--device", "y") == "cpu ['--device', 'y'] __main__ 1"
    assert shown("-m", "train", "--device", "acme", "z") == "acme:0 ['z'] __main__ 1"
    assert shown(
        "-c", "import sys, torch; print(torch.ones(1).device, sys.argv, __name__)", "--device", "acme", "z"
    ) == ("acme:0 ['-c', 'z'] __main__")
    assert acme.cli("run", path, "7").returncode == 7
    done = acme.cli("run", path, "--device", "nosuch")
    assert done.returncode == 2 and "no backend named 'nosuch'" in done.stderr and "Traceback" not in done.stderr
    assert "usage: tesserack run" in acme.cli("run", "--help").stdout
    script.write_text("import tesserack as ts\nts.ones(1, device='nosuch')")
    done = acme.cli("run", path)
    assert done.returncode == 1 and "Traceback" in done.stderr and "train.py" in done.stderr


# --- doctor --------------------------------------------------------------------------------------------------------


def examined(site, *options: str, **variables: str) -> tuple[dict, int]:
    done = site.cli("doctor", "--json", *options, **variables)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout), done.returncode


def found(report: dict, level: str, *words: str) -> bool:
    return any(
        finding["level"] == level and all(word in " ".join(finding.values()) for word in words)
        for finding in report["findings"]
    )


def test_doctor_of_a_good_environment(acme):
    report, status = examined(acme, OMP_NUM_THREADS="1")
    assert status == 0 and report["tesserack"]["version"] == ts.__version__ and report["cpu"]["usable"] >= 1
    assert {record["name"]: record["status"] for record in report["backends"]} == {"acme": "ready", "cpu": "ready"}
    assert found(report, "ok", "backend cpu", "1 device") and found(report, "warning", "acme-pkg 1.5 lacks required")
    assert report["packages"]["acme-pkg"] == "1.5" and report["environment"]["OMP_NUM_THREADS"] == "1"
    assert examined(acme, "--strict")[1] == 1
    text = acme.cli("doctor").stdout
    assert "ok backend cpu" in text and "-> they run on the cpu" in text


def test_doctor_names_kernels_that_nothing_calls(site):
    body = """
        from tesserack.backends import Backend
        class Typo(Backend):
            name, vendor, version = "typo", "com.typo", "1.0"
        library = Typo()
        library.kernel("mattmul", "softmax", "qqq", "mylib::later")(lambda *a: None)
    """
    site.package("typo-pkg", body, backend="typo")
    report, _ = examined(site)
    assert found(
        report, "warning", "backend typo", "a kernel 'mattmul', which is never called", "did you mean 'matmul'?"
    )
    assert found(report, "warning", "a kernel 'qqq', which is never called", "see tesserack ops")
    assert not found(report, "warning", "'softmax'") and not found(report, "warning", "mylib")


def test_doctor_names_faulty_backends(acme, library):
    acme.native("other-pkg", library("acme"), "acme")
    acme.native("old-pkg", library("old", "-DABI_MAJOR=7"), "old")
    acme.native("empty-pkg", library("empty", "-DDEVICES=0"), "empty")
    acme.package("crash-pkg", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", backend="crash")
    report, status = examined(acme)
    assert status == 1
    assert found(report, "error", "claimed by acme-pkg 1.5 and other-pkg 1.5", "uninstall")
    assert found(report, "error", "backend old", "built for ABI 7", "install a version of old-pkg for ABI 2.")
    assert found(report, "warning", "empty-pkg 1.5 finds no device: the acme driver is not loaded")
    assert found(report, "error", "crash-pkg 1.5 ended the process (SIGSEGV)", "reinstall crash-pkg")
    assert found(report, "ok", "backend cpu")


def test_doctor_looks_at_settings(site):
    report, _ = examined(
        site, OMP_NUM_THREADS="4096", OMP_WAIT_POLICY="active", TESSERACK_DEVCE="cpu", TESSERACK_CPU_X="1"
    )
    assert not found(report, "warning", "TESSERACK_CPU_X")
    assert found(report, "warning", "OMP_NUM_THREADS=4096", "export OMP_NUM_THREADS=")
    assert found(report, "warning", "OMP_WAIT_POLICY") and found(report, "warning", "did you mean TESSERACK_DEVICE?")
    report, status = examined(site, TESSERACK_DEVICE="nosuch")
    assert status == 1 and found(report, "error", "TESSERACK_DEVICE=nosuch", "no backend named 'nosuch'")
    report, status = examined(site, TESSERACK_PLUGINS="perhaps")
    assert status == 1 and found(report, "error", "TESSERACK_PLUGINS: expected 'on' or 'off'")
    assert found(examined(site, TESSERACK_PLUGINS="off")[0], "info", "TESSERACK_PLUGINS=off")


def test_doctor_looks_at_packages(site, tmp_path):
    site.package("gone-pkg", backend="gone").unlink()
    site.package("tesserack-needy", metadata="Requires-Dist: tesserack>=99\nRequires-Dist: tesserack-nosuch\n")
    for version in ("1.0", "2.0"):
        folder = site.folder if version == "1.0" else tmp_path
        info = folder / f"tesserack_twice-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tesserack-twice\nVersion: {version}\n")
    site.package("tesserack-edited")
    info = site.folder / "tesserack_edited-1.5.dist-info"
    info.joinpath("direct_url.json").write_text('{"url": "file:///gone%20away", "dir_info": {"editable": true}}')
    (site.folder / "__editable__.tesserack_old.pth").write_text("/nowhere/at/all\n")
    path = f"{site.environment()['PYTHONPATH']}:{tmp_path}"
    report, status = examined(site, PYTHONPATH=path)
    assert status == 1
    assert found(report, "error", "gone-pkg", "its module 'gone_pkg' is not there")
    assert found(report, "error", "tesserack-needy", "needs tesserack>=99, but 0.", "pip install 'tesserack>=99'")
    assert found(report, "error", "tesserack-needy", "needs tesserack-nosuch, but it is not installed")
    assert found(report, "warning", "tesserack-twice", "1.0 in", "2.0 in")
    assert found(report, "error", "tesserack-edited", "editable mode from /gone away")
    assert found(report, "warning", "/nowhere/at/all, which is gone")


def test_doctor_notices_damaged_libraries(site, library):
    own = site.native("acme-pkg", library("acme"), "acme")
    content = own.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    record = site.folder / "acme_pkg-1.5.dist-info" / "RECORD"
    record.write_text(f"{own.name},sha256={digest},{len(content)}\nlibgone.so,sha256={digest},1\n")
    report, _ = examined(site)
    assert found(report, "error", "libgone.so is missing") and not found(report, "error", own.name)
    own.write_bytes(content + b"\0")
    assert found(
        examined(site)[0], "error", own.name, f"it has {len(content) + 1} bytes, {len(content)} were installed"
    )
    own.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert found(examined(site)[0], "error", own.name, "it is not the file that was installed", "reinstall acme-pkg")


def test_doctor_without_backends():
    prelude = "import importlib.metadata as m; m.entry_points = lambda **k: []\n"
    program = f"{prelude}import sys; from tesserack.cli import main; sys.exit(main(['doctor', '--json']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and found(json.loads(done.stdout), "error", "pip install tesserack-cpu")


def test_quota_of_containers(tmp_path):
    assert _environment.cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert _environment.cpu_quota(tmp_path) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert _environment.cpu_quota(tmp_path) is None


def test_hardware_is_read_from_the_bus(tmp_path):
    card = tmp_path / "0000:01:00.0"
    card.mkdir()
    for name, text in {"class": "0x120000", "vendor": "0x1234", "device": "0x5678"}.items():
        (card / name).write_text(text + "\n")
    (tmp_path / "acmedrm").mkdir()
    (card / "driver").symlink_to(tmp_path / "acmedrm")
    disk = tmp_path / "0000:02:00.0"
    disk.mkdir()
    (disk / "class").write_text("0x010601\n")
    assert _environment._hardware(tmp_path) == [
        {"address": card.name, "kind": "accelerator", "vendor": "0x1234", "device": "0x5678", "driver": "acmedrm"}
    ]


def test_variables_are_all_known():
    """What doctor takes for ours is what the sources read."""
    read = set()
    for path in (ROOT / "core").rglob("*.py"):
        if "_checks" not in path.parts:
            texts = [n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)]
            read |= {t for t in texts if isinstance(t, str) and re.fullmatch(r"TESSERACK_[A-Z_]+[A-Z]", t)}
    for path in (ROOT / "core").rglob("*.cpp"):
        read |= {*re.findall(r'getenv\("(TESSERACK_[A-Z_]+)"\)', path.read_text())}
    assert read == {*settings.VARIABLES}


def test_sizes():
    assert [size_text(n) for n in (0, 1023, 1024, 3 << 29, 5 << 40, 5 << 50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 GiB",
        "5.0 TiB",
        "5120.0 TiB",
    ]
    assert Finding("ok", "a", "b").cure == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is full")
@pytest.mark.parametrize("words", [["ops"], ["devices"], ["--version"], ["--help"], ["ops", "--help"], []])
@pytest.mark.parametrize("buffered", [True, False])
def test_output_that_finds_no_room_is_an_error(words, buffered):
    called = [sys.executable, *([] if buffered else ["-u"]), "-m", "tesserack", *words]
    given = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(called, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, env=given)
    assert done.returncode == 1 and "could not be written" in done.stderr and "Traceback" not in done.stderr
