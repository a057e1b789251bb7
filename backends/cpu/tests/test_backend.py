"""The backend table itself: memory, copies, threads, forks, and the choice of instruction set."""

from __future__ import annotations

import contextlib
import ctypes as ct
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import kernel_harness as h
import numpy as np
import pytest
import tesserack_cpu


def test_names_and_probe() -> None:
    table = h.backend()
    assert (table.name, table.vendor, table.abi_major) == (b"cpu", b"org.tesserack.cpu", 2)
    count, reason = ct.c_int32(), ct.create_string_buffer(64)
    assert table.probe(None, ct.byref(count), reason, 64) == h.OK
    assert count.value == 1 and reason.value == b""


def test_properties_fill_only_what_the_caller_has() -> None:
    full = h.Properties(struct_size=ct.sizeof(h.Properties))
    assert h.backend().properties(None, 0, ct.byref(full)) == h.OK
    assert full.name and full.total_memory > 0 and full.flags & 1 and full.compute_units >= 1
    short = h.Properties(struct_size=8 + 128, total_memory=77)
    assert h.backend().properties(None, 0, ct.byref(short)) == h.OK
    assert short.name == full.name and short.total_memory == 77


@pytest.mark.parametrize("size", [0, 1, 100, 5 << 20])
def test_allocations_are_aligned_and_writable(size: int) -> None:
    handle = ct.c_void_p()
    assert h.backend().alloc(None, 0, size, None, ct.byref(handle)) == h.OK
    assert handle.value and handle.value % 64 == 0
    assert h.backend().host_pointer(None, 0, handle) == handle.value
    ct.memset(handle.value, 1, size)
    h.backend().free(None, 0, handle, size, None)


@pytest.mark.parametrize("size", [2**64 - 1, 2**63, 2**62])
def test_huge_allocations_run_out_of_memory(size: int) -> None:
    handle = ct.c_void_p(5)
    h.backend.cache_clear()  # the core, where it was loaded since, is where errors went
    assert h.backend().alloc(None, 0, size, None, ct.byref(handle)) == h.OUT_OF_MEMORY
    assert not handle.value and f"{size} bytes" in h._last_error[0]


@pytest.mark.parametrize("size", [0, 3, 4_000_000])
def test_copies(size: int) -> None:
    source = np.random.default_rng(0).integers(0, 255, size + 16, dtype="u1")
    there, back = np.zeros(size + 16, "u1"), np.zeros(size + 16, "u1")
    table = h.backend()
    assert table.copy_from_host(None, 0, there.ctypes.data, 5, source.ctypes.data, size, None) == h.OK
    assert table.copy_to_host(None, 0, back.ctypes.data, there.ctypes.data, 5, size, None) == h.OK
    np.testing.assert_array_equal(back[:size], source[:size])
    want = there.copy()
    want[8 : 8 + size] = there[5 : 5 + size]
    assert table.copy_within(None, 0, there.ctypes.data, 8, there.ctypes.data, 5, size, None) == h.OK
    np.testing.assert_array_equal(there, want)
    assert table.synchronize(None, 0, None) == h.OK


def test_an_unknown_operator_is_declined() -> None:
    found = h.Kernel(struct_size=ct.sizeof(h.Kernel))
    assert h.backend().get_kernel(None, 0, b"no_such_operator", ct.byref(found)) == h.DECLINED


def test_the_required_entry_points_are_there() -> None:
    for op in [
        "copy_cast",
        "fill",
        "iota",
        "pointwise",
        "reduce",
        "scan",
        "matmul",
        "gather",
        "scatter",
        "sort",
        "random_bits",
    ]:
        assert h.kernel(op).run


def test_thread_count() -> None:
    table = h.backend()
    before = table.get_num_threads(None)
    table.set_num_threads(None, 3)
    assert table.get_num_threads(None) == 3
    table.set_num_threads(None, -1)
    assert table.get_num_threads(None) == 1
    table.set_num_threads(None, before)


def test_workers_may_run_where_they_might_before() -> None:
    """A worker that steps aside for its caller is not bound to a processor by that."""
    program = f"""
import os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import kernel_harness as h, numpy as np
allowed = os.sched_getaffinity(0)
h.backend().set_num_threads(None, max(2, len(allowed)))
x = np.arange(1 << 18, dtype="f4"); out = np.empty_like(x)
for _ in range(300): h.pointwise(out, [x], [("neg", 0)], "f4")
assert (out == -x).all()
tasks = os.listdir("/proc/self/task")
assert len(tasks) > 1 and all(os.sched_getaffinity(int(task)) == allowed for task in tasks)
"""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_forked_child_computes_on_one_thread() -> None:
    x = np.arange(1 << 20, dtype="f4")
    out = np.empty_like(x)
    before = h.backend().get_num_threads(None)
    h.backend().set_num_threads(None, 2)
    h.pointwise(out, [x], [("exp", 0)], "f4")  # starts the parent's pool
    child = os.fork()
    if child == 0:
        h.pointwise(out, [x], [("neg", 0)], "f4")
        os._exit(0 if h.backend().get_num_threads(None) == 1 and out[-1] == -x[-1] else 1)
    _, status = os.waitpid(child, 0)
    h.backend().set_num_threads(None, before)
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_library_exports_its_entry_point_and_version() -> None:
    path = h.library_path()
    if path is None:
        pytest.skip("no library")
    listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    if "asan" in listed.stdout:
        pytest.skip("a sanitizer exports its own")
    assert sorted(line.split()[-1] for line in listed.stdout.splitlines()) == ["tesserack_abi", "tesserack_backend"]


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_an_instruction_set_can_be_forced(isa: str) -> None:
    program = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import ctypes as ct, kernel_harness as h, numpy as np
p = h.Properties(struct_size=ct.sizeof(h.Properties))
h.backend().properties(None, 0, ct.byref(p))
x = np.linspace(-9, 9, 1001).astype("f4"); out = np.empty_like(x)
for op in ("exp", "tanh", "sigmoid", "erf"): h.pointwise(out, [x], [(op, 0)], "f4")
print(p.name.decode())
"""
    path = h.library_path()
    if path is None:
        pytest.skip("no library")
    env = os.environ | {"TESSERACK_CPU_ISA": isa, "TESSERACK_CPU_LIB": str(path)}
    shown = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    best = h.Properties(struct_size=ct.sizeof(h.Properties))
    h.backend().properties(None, 0, ct.byref(best))
    assert f"({isa})" in shown or best.name.decode().split("(")[-1] in shown  # a lesser processor keeps its best


def test_a_processor_without_what_was_built_is_refused(tmp_path: Path) -> None:
    """The table's own files, of no instruction set: what a build for another processor is to this one."""
    compiler = shutil.which("g++")
    native = Path(__file__).parents[1] / "native"
    if compiler is None or not native.exists():
        pytest.skip("needs g++ and the sources")
    library = tmp_path / "libforeign.so"
    names = ("backend", "isa", "kept", "matmul/engines", "pages", "processor", "threads")
    files = [native / f"{name}.cpp" for name in names]
    folders = [f"-I{native}", f"-I{native.parents[2] / 'core' / 'include'}"]
    defines = ["-DTESSERACK_CPU_ISA_VARIANTS=1", "-DTESSERACK_CPU_BUILT=0", '-DTESSERACK_CPU_VERSION="0"']
    options = ["-std=c++20", "-O0", "-shared", "-fPIC", "-fopenmp", "-fvisibility=hidden"]
    subprocess.run([compiler, *options, *defines, *folders, *files, "-o", library], check=True, timeout=300)
    status, message, table = h.load_table(library)
    assert status != h.OK and not table
    assert "this one (" in message and "TESSERACK_CPU_ISA=all" in message


def test_an_installation_without_onednn_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pip install --target` leaves it: libraries outside packages are dropped."""

    def open_library(name: str) -> None:
        raise OSError("libdnnl.so.3: cannot open shared object file")

    monkeypatch.setattr("tesserack_cpu.ctypes.CDLL", open_library)
    with pytest.raises(FileNotFoundError, match=r"onednn-cpu-gomp.*virtual environment"):
        tesserack_cpu._open(Path("libtesserack_cpu.so"))


def test_threads_that_load_at_once_do_so_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sets variables of the process while it does."""
    both, met = threading.Barrier(2), []

    def open_it(_: Path) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # in vain: the other is outside until this one has ended
            met.append(threading.get_ident())

    monkeypatch.setattr(tesserack_cpu, "_open", open_it)
    threads = [threading.Thread(target=tesserack_cpu.library) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not met and both.broken


@pytest.mark.parametrize(
    ("second", "first", "chosen"), [(0, 1 << 22, None), (1 << 23, 1 << 22, "ARMV8SVE"), (1 << 23, 0, "ARMV8")]
)
def test_openblas_takes_other_kernels_where_those_for_sme_are_empty(
    monkeypatch: pytest.MonkeyPatch, second: int, first: int, chosen: str | None
) -> None:
    monkeypatch.setattr(tesserack_cpu.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(tesserack_cpu, "_capabilities", {16: first, 26: second}.__getitem__)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    with tesserack_cpu._load_time_settings():
        assert os.environ.get("OPENBLAS_CORETYPE") == chosen
    assert "OPENBLAS_CORETYPE" not in os.environ
    monkeypatch.setenv("OPENBLAS_CORETYPE", "NEOVERSEN1")
    with tesserack_cpu._load_time_settings():
        assert os.environ["OPENBLAS_CORETYPE"] == "NEOVERSEN1"
    monkeypatch.setattr(tesserack_cpu.platform, "machine", lambda: "x86_64")
    assert tesserack_cpu._for_openblas() == {}
