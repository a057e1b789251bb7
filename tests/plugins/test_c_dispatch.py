"""Dispatch keys and operators of a library in C: c_dispatch.c beside this file."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack import library
from tesserack.utils import cpp_extension

HERE = Path(__file__).resolve().parent


def compiled(name: str, sources: Any, **options: Any) -> Path:
    try:
        cpp_extension.find_compiler()
    except cpp_extension.CompileError as error:
        pytest.skip(str(error))
    return cpp_extension.load(name, sources, ["-Wextra", "-Werror"], **options)


@pytest.fixture(scope="module")
def acme() -> Any:
    """The operators of the library."""
    path = compiled("c_dispatch", HERE / "c_dispatch.c", kind="library")
    ts.dispatch.load_library(path)  # once more: nothing happens
    ts.dispatch.load_library(path.parent / ".." / path.parent.name / path.name)
    return ts.ops.acme


@pytest.fixture
def trap(acme: Any) -> ts.dispatch.Key:
    return ts.dispatch.get_key("AcmeTrap")


@pytest.fixture(scope="module", autouse=True)
def _fails() -> Iterator[None]:
    """An operator in Python that C calls."""

    @library.custom_op("acme::fails", mutates_args=())
    def fails() -> int:
        raise LookupError("from Python")

    yield


def test_a_key_counts_and_traps(acme: Any, trap: ts.dispatch.Key) -> None:
    calls, flops = acme.calls(), acme.flops()
    a, b = ts.ones(2, 3), ts.ones(3, 5)
    with trap.enabled():
        c = a @ b
        d = (c + 1).sum()
        assert (acme.calls(), d.item()) == (calls + 3, 40.0)  # add, sum, calls itself
    assert acme.flops() - flops == 2 * 2 * 5 * 3
    before = acme.calls()
    assert (a @ b).tolist() == [[3.0] * 5] * 2 and acme.calls() == before
    with trap.enabled(), pytest.raises(ValueError, match=r"div.* \(kernel of acme-extras 1.0\): div.* gave NaN at 1"):
        ts.tensor([1.0, 0.0]) / ts.tensor([1.0, 0.0])
    with trap.enabled(), pytest.raises(RuntimeError, match=r"shape|size"):  # the operator's own error, as it was
        ts.ones(2) + ts.ones(3)


def test_gradients_pass_through_a_key(trap: ts.dispatch.Key) -> None:
    x = ts.tensor([1.0, 2.0], requires_grad=True)
    with trap.enabled():
        (x * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 4.0]


def test_a_key_is_enabled_per_thread(acme: Any, trap: ts.dispatch.Key) -> None:
    """Two threads at once, one with the key."""
    x, rounds = ts.ones(30, 30), 200
    start, errors = threading.Barrier(2), []
    flops = acme.flops()

    def work(on: bool) -> None:
        try:
            start.wait()
            with trap.enabled(on):
                for _ in range(rounds):
                    assert (x @ x + 1)[0, 0].item() == 31.0
                    assert acme.saxpy(x, x).sum().item() == 2700.0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(on,)) for on in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and acme.flops() - flops == rounds * 2 * 30**3


def test_the_interpreter_is_released(acme: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(acme.wait)
        acme.signal()
        assert waiting.result() is True


def test_c_enables_a_key(acme: Any) -> None:
    x = ts.ones(2)
    assert acme.enable(True) is False
    try:
        before = acme.calls()
        _ = x + 1
        assert acme.calls() == before + 2
    finally:
        assert acme.enable(False) is True
    before = acme.calls()
    _ = x + 1
    assert acme.calls() == before


def test_a_kernel_changes_arguments_or_declines(acme: Any) -> None:
    half = ts.dispatch.get_key("AcmeHalf")
    x = ts.tensor([2.0, 4.0])
    with half.enabled():
        assert np.allclose(x.exp().numpy(), np.exp([1.0, 2.0]))
        assert np.allclose(x.log().numpy(), np.log([2.0, 4.0]))


def test_a_kernel_of_a_backend_declines(acme: Any) -> None:
    x = ts.tensor([1.5, -1.5])
    version = x._version
    assert x.trunc().tolist() == [1.0, -1.0] and dict(ts.dispatch.table("trunc"))["cpu"] == "acme-extras 1.0"
    assert x.trunc_() is x and x.tolist() == [1.0, -1.0] and x._version == version + 1


def test_a_fallback_replaced_leaves_kernels_of_operators() -> None:
    key = ts.dispatch.register_key("ReplacedFallback", before="UserMode")
    seen = []
    for name in ("first", "second"):
        key.fallback(lambda call, *args, name=name: seen.append(name) or call.redispatch(*args))
        if name == "first":
            key.kernel("neg")(lambda call, *args: seen.append("neg") or call.redispatch(*args))
    x = ts.ones(1)
    with key.enabled():
        _ = -x, x.abs()
    assert seen == ["neg", "second"]


def test_the_kernels_of_compiled_operators_are_checked(acme: Any) -> None:
    op = library.get("acme::traced")
    op.register_fake(lambda x, y, a: x)
    x = ts.ones(2, device="meta")
    with pytest.raises(RuntimeError, match="returned one of its arguments"):
        acme.traced(x, x)
    op.register_fake(lambda x, y, a: ts.empty_like(x))
    assert acme.traced(x, x).shape == (2,)


def test_an_operator(acme: Any) -> None:
    x, y = ts.randn(4, 3), ts.randn(4, 3)
    expected = 3 * x.numpy() + y.numpy()
    loops = acme.loops()
    assert np.allclose(acme.saxpy(x, y, 3.0).numpy(), expected, rtol=1e-6) and acme.loops() == loops + 1
    assert np.allclose(acme.saxpy(x.double(), y, a=3.0).numpy(), expected)  # declined: by other operators
    assert np.allclose(acme.saxpy(x.t(), y.t(), 3).numpy(), expected.T, rtol=1e-6)
    assert acme.saxpy(x, y).dtype is ts.float32 and acme.saxpy.__doc__ == "a * x + y."
    assert library.get("acme::saxpy").schema == "acme::saxpy(Tensor x, Tensor y, float a=2) -> Tensor"
    with pytest.raises(TypeError, match="must be"):
        acme.saxpy("x", y)
    with pytest.raises(KeyError, match="acme::saxpy"):
        library.get("acme::nothing")
    with pytest.raises(AttributeError):
        _ = acme.nothing


def test_kernels_meet_plain_memory(acme: Any, trap: ts.dispatch.Key) -> None:
    """Values whose negation is pending: at a backend's key, and at a key above those that resolve it."""
    x, y = ts.tensor([1.0, -2.0, 3.0]), ts.tensor([0.5, 0.5, 0.5])
    loops = acme.loops()
    assert acme.saxpy(x._neg_view(), y, 2.0).tolist() == [-1.5, 4.5, -5.5] and acme.loops() == loops + 1
    with trap.enabled():
        assert x._neg_view().view(3)[1:].tolist() == [2.0, -3.0]
        assert x._neg_view().mul_(2).tolist() == [-2.0, 4.0, -6.0] and x.tolist() == [2.0, -4.0, 6.0]
        with pytest.raises(ValueError, match="NaN at 1"):
            ts.tensor([1.0, float("nan")])._neg_view()


def test_gradient_shapes_and_checks(acme: Any) -> None:
    saxpy = library.get("acme::saxpy")
    x = ts.randn(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="no rule for shapes; give one with register_fake"):
        acme.saxpy(ts.ones(2, device="meta"), ts.ones(2, device="meta"))
    with pytest.raises(RuntimeError, match="register_autograd"):
        acme.saxpy(x, x).sum().backward()
    saxpy.register_fake(lambda x, y, a: ts.empty_like(x))

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.a = inputs[2]

    saxpy.register_autograd(lambda ctx, grad: (grad * ctx.a, grad, None), setup_context=setup)
    acme.saxpy(x, ts.ones(3), 5.0).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [5.0] * 3
    assert acme.saxpy(ts.ones(2, 7, device="meta"), ts.ones(2, 7, device="meta")).shape == (2, 7)
    for dtype in (ts.float32, ts.float64):
        args = (ts.randn(3, dtype=dtype, requires_grad=True), ts.randn(3, dtype=dtype, requires_grad=True), 3.0)
        assert set(library.opcheck(saxpy, args).values()) == {"SUCCESS"}
    table = dict(ts.dispatch.table("acme::saxpy"))
    assert table["cpu"] == "acme loops" and table["Autograd"] == "acme::saxpy.register_autograd"
    assert table["AcmeTrap"] == "acme-extras 1.0"
    text = ts.dispatch.explain("acme::saxpy", x)
    assert "cpu: kernel registered by acme loops" in text
    assert dict(ts.dispatch.table("acme::cpu_only"))["cpu"] == "acme-extras 1.0"
    assert dict(ts.dispatch.table("matmul"))["AcmeTrap"] == "acme flops"
    assert "defined by acme-extras 1.0" in ts.dispatch.explain("acme::kinds", ts.ones(2))


def test_composite_is_traced(acme: Any) -> None:
    x = ts.tensor([1.0, 2.0], dtype=ts.float64, requires_grad=True)
    assert ts.autograd.gradcheck(lambda t: acme.traced(t, t * t, 3.0), (x,))
    assert acme.traced(ts.ones(2, device="meta"), ts.ones(2, device="meta")).shape == (2,)


def test_other_devices(acme: Any, reference: ts.device) -> None:
    x = ts.ones(2, device=reference)
    assert acme.saxpy(x, x).tolist() == [3.0, 3.0]
    with pytest.raises(NotImplementedError, match=r"cpu_only: no kernel for this case \(registered: cpu\)"):
        acme.cpu_only(x, x)

    assert acme.cpu_only(*(ts.ones(3, 2, dtype=ts.int8, device="meta") for _ in "xy")).shape == (3, 2)

    @library.register_kernel("acme::cpu_only", "reference")
    def there(x: ts.Tensor, y: ts.Tensor, a: float) -> ts.Tensor:
        return x * 0

    assert acme.cpu_only(x, x).tolist() == [0.0, 0.0] and acme.cpu_only(ts.ones(1), ts.ones(1)).item() == 3.0


def test_values_of_every_kind(acme: Any) -> None:
    xs = [ts.ones(2), ts.zeros(1)]
    joined, total, parts = acme.kinds(xs, None, [4, 5], [0.5])
    assert joined.tolist() == [0.0, 1.0, 1.0] and total == 9
    assert parts[0] is xs[1] and parts[1] is xs[0] and parts[2] is joined
    with pytest.raises(ValueError, match="8/1 1/1 6/3 7/0 5/0 4/0 9/0 3/0 "):
        acme.kinds(xs[:1], ts.ones(1), [4, 5, 6], [], "t", False, ts.float32, 0.5)
    x = ts.zeros(2)
    version = x._version
    assert acme.add_one_(x) is None and x.tolist() == [1.0, 1.0] and x._version == version + 1
    first, second = (acme.draw(ts.Generator().manual_seed(3)).tolist() for _ in range(2))
    assert first == second and len({*first}) == 3
    assert len(acme.draw(None)) == 3
    with pytest.raises(ValueError, match="gives tensors and numbers, not str"):
        acme.text()


MISUSE: dict[int, tuple[type[Exception], str]] = {
    0: (IndexError, "expected an argument below 2, got 9"),
    1: (IndexError, "expected an argument below 2, got -1"),
    2: (IndexError, "expected the number of a tensor below 1, got 99"),
    3: (IndexError, "expected the number of a tensor below 1, got -1"),
    4: (ValueError, "tensor: expected struct_size to be set before, got 0"),
    5: (ValueError, "tensor: expected a place for the answer, got NULL"),
    6: (IndexError, "expected a result below 1, got 1"),
    7: (IndexError, "expected a result below 1, got 3"),
    8: (ValueError, "result 0 must be Tensor.*, not a value of tag 2"),
    9: (ValueError, "result 0 must be Tensor.*, not a value of tag 77"),
    10: (ValueError, "set_result: expected a place"),
    11: (RuntimeError, "no operator named 'no_such_operator'"),
    12: (ValueError, "expected the name of an operator, got NULL"),
    13: (ValueError, "relu: self must be .*, not a value of tag 2"),
    14: (ValueError, "expected arguments and results, or none"),
    15: (RuntimeError, "there is no next key after the operator's own function"),
    16: (ValueError, r"expected sizes that are not negative, got \[-1, 2\]"),
    17: (ValueError, "expected 0 to 64 sizes, got 2"),
    18: (ValueError, "there is no dtype 77"),
    19: (IndexError, "expected the number of a tensor below 1, got 5"),
    20: (IndexError, "tensor 0 was dropped"),
    21: (ValueError, "expected a call whose kernel runs now in this thread"),
    22: (ValueError, "expected a call whose kernel runs now in this thread"),
    23: (ValueError, "expected a call whose kernel runs now in this thread"),
    24: (ValueError, "the interpreter is released"),
    25: (RuntimeError, r"acme::misuse \(kernel of acme-extras 1.0\): failed with status 2, and gave no message"),
    26: (RuntimeError, "the kernel gave no result 0; it must call set_result or redispatch"),
    27: (RuntimeError, "the kernel returned one of its arguments"),
    28: (NotImplementedError, "no kernel for this case"),
    29: (RuntimeError, "failed with status 1234"),
    30: (IndexError, "expected the number of a tensor below 1, got 7"),
    31: (IndexError, "said while released"),
    32: (RuntimeError, "kernels written in C call each other more than 1000 deep"),
    34: (LookupError, "^'?from Python'?$"),
    35: (ValueError, r"\(kernel of acme-extras 1.0\): in my own words"),
    36: (IndexError, "expected an argument below 2, got 5"),
    37: (ValueError, "x must be Tensor, not a value of tag 77"),
    38: (ValueError, "expected numbers of tensors, got 2 of them"),
    39: (IndexError, "expected the number of a tensor below 1, got 50"),
    40: (IndexError, "expected the number of a tensor below 1, got 1"),
    41: (ValueError, "what must be int, not a value of tag 10"),
    42: (IndexError, "expected the number of a tensor below 1, got 1234"),
}


@pytest.mark.parametrize("what", MISUSE)
def test_misuse_is_an_error(acme: Any, trap: ts.dispatch.Key, what: int) -> None:
    x = ts.ones(2)
    with trap.enabled(), pytest.raises(ValueError, match="kept"):  # deeper, so the call is at another address
        acme.misuse(x, 100)
    kind, message = MISUSE[what]
    with pytest.raises(kind, match=message) as caught:
        acme.misuse(x, what)
    assert type(caught.value) is kind
    assert acme.misuse(x, 33).tolist() == [1.0, 1.0]  # failures that the kernel deals with leave nothing behind


def test_an_exception_of_python_keeps_its_traceback(acme: Any) -> None:
    with pytest.raises(LookupError) as caught:
        acme.misuse(ts.ones(1), 34)
    assert any("raise LookupError" in str(entry.statement) for entry in caught.traceback)


def test_nothing_is_kept_of_a_call(acme: Any, trap: ts.dispatch.Key) -> None:
    """Tensors die with the call, whether it succeeded or failed."""
    allocated = ts.memory_stats()["allocated"]

    def use() -> weakref.ref[ts.Tensor]:
        x = ts.ones(1000)
        with trap.enabled():
            acme.saxpy(x, x)
            acme.kinds([x, x, x], x, [1], [])
            for what in (27, 33, 34, 35, 20, 24):
                with contextlib.suppress(Exception):
                    acme.misuse(x, what)
        return weakref.ref(x)

    refs = [use() for _ in range(20)]
    gc.collect()
    assert all(ref() is None for ref in refs) and ts.memory_stats()["allocated"] <= allocated


# --- loading ---------------------------------------------------------------------------------------------------------

BASE = """
#include <tesserack/abi.h>
#ifndef STATEMENT
#define STATEMENT d ? TS_OK : TS_ERROR
#endif
#ifndef MAJOR
#define MAJOR TS_ABI_MAJOR
#endif
#ifndef MINOR
#define MINOR 0
#endif
#ifndef NAME
#define NAME "sample"
#endif
#ifndef SETUP
#define SETUP setup
#endif
#ifndef SIZE
#define SIZE sizeof(ts_plugin)
#endif
static int kernel(ts_boxed* call, void* ctx) { return (void)call, (void)ctx, TS_DECLINED; }
int setup(void* ctx, const ts_host* host);
int setup(void* ctx, const ts_host* host) {
  const ts_dispatch* d = host->dispatch;
  static const ts_operator empty = {sizeof(ts_operator), 0, 0, 0, 0, 0, 0, 0};
  ts_operator op = empty;
  op.run = kernel;
  (void)ctx, (void)op, (void)d;
  return STATEMENT;
}
__attribute__((visibility("default"))) int tesserack_plugin(const ts_host* host, const ts_plugin** out);
int tesserack_plugin(const ts_host* host, const ts_plugin** out) {
  static const ts_plugin plugin = {SIZE, MAJOR, MINOR, NAME, "2.1", 0, SETUP};
  (void)host, (void)setup;
  *out = &plugin;
#ifdef NO_TABLE
  *out = 0;
#endif
#ifdef REFUSES
  host->set_error(REFUSES);
  return TS_VALUE_ERROR;
#endif
  return TS_OK;
}
"""


def define(schema: str) -> str:
    return f'(op.schema = "{schema}", d->define_operator(&op))'


REFUSED: dict[str, tuple[type[Exception], str]] = {
    "MAJOR=7": (RuntimeError, r"was built for ABI 7.x, this core speaks 2\."),
    "MINOR=99": (RuntimeError, r"needs ABI 2.99 or later.*upgrade tesserack"),
    "NAME=0": (RuntimeError, "has no name"),
    "SETUP=0": (RuntimeError, "gave a table without setup"),
    "SIZE=8": (RuntimeError, "too small to say its version"),
    "NO_TABLE": (RuntimeError, "gave no table"),
    'REFUSES="no license"': (ValueError, "no license"),
    "tesserack_plugin=other": (RuntimeError, "does not export tesserack_plugin"),
    "STATEMENT=TS_ERROR": (RuntimeError, r"library: sample 2.1 \(.*\): failed with status 2"),
    "STATEMENT=TS_DECLINED": (NotImplementedError, "sample 2.1"),
    'STATEMENT=(host->set_error("no luck"),TS_INDEX_ERROR)': (IndexError, "sample 2.1 .*no luck"),
    'STATEMENT=d->register_key("SampleKey","Nothing",1)': (ValueError, "no key named 'Nothing'"),
    'STATEMENT=d->register_key("Autograd","Autograd",1)': (RuntimeError, "a key named 'Autograd' exists already"),
    'STATEMENT=d->register_key("a-b","Autograd",1)': (ValueError, "letters, digits and underscores, got 'a-b'"),
    'STATEMENT=d->register_key("cpu","Autograd",1)': (ValueError, "'cpu' is the name of a device"),
    'STATEMENT=d->register_key(0,"Autograd",1)': (ValueError, "expected a name, got NULL"),
    'STATEMENT=d->set_kernel("add","Nothing",kernel,0,0)': (ValueError, r"named 'Nothing'; keys are .*Autograd"),
    'STATEMENT=d->set_kernel("add","nothing",kernel,0,0)': (ts.BackendUnavailableError, "no backend named 'nothing'"),
    'STATEMENT=d->set_kernel("nothing","Autograd",kernel,0,0)': (RuntimeError, "no operator named 'nothing'"),
    'STATEMENT=d->set_kernel(0,"cpu",kernel,0,0)': (ValueError, "a backend, which has no fallback"),
    'STATEMENT=d->set_kernel("add","cpu",0,0,0)': (ValueError, "cannot pass by the backend 'cpu'"),
    'STATEMENT=d->set_kernel("add",0,kernel,0,0)': (ValueError, "expected a key's name, got NULL"),
    'STATEMENT=d->enable_key("Nothing",1,0)': (ValueError, "no key named 'Nothing'"),
    "STATEMENT=d->define_operator(0)": (ValueError, "expected a description"),
    "STATEMENT=d->define_operator(&op)": (ValueError, "expected a schema, got NULL"),
    "STATEMENT=(op.flags=64,op.schema=NAME,d->define_operator(&op))": (ValueError, "unknown flags 64"),
    "STATEMENT=" + define("plain(Tensor x) -> Tensor"): (ValueError, "expected a name like 'mylib::myop', got 'plain'"),
    "STATEMENT=" + define("a::b(Tensor x"): (ValueError, "schema: expected '\\)'"),
    "STATEMENT=" + define("a::b(Rensor x) -> Tensor"): (ValueError, "a type instead of Rensor"),
    "STATEMENT=" + define("a::b(Tensor x, Tensor x) -> Tensor"): (ValueError, "two arguments are called x"),
    "STATEMENT=" + define("a::b(int x=q) -> Tensor"): (ValueError, "expected numbers that fit"),
    "STATEMENT=" + define("acme::fails() -> int"): (RuntimeError, "'acme::fails' is already registered"),
}


def sample(tmp_path: Path, *defines: str) -> Path:
    source = tmp_path / "sample.c"
    source.write_text("".join("#define {} {}\n".format(*[*d.split("=", 1), ""][:2]) for d in defines) + BASE)
    return compiled("sample", source, kind="plain", build_directory=tmp_path)


@pytest.mark.parametrize("what", REFUSED)
def test_a_library_is_refused_with_a_reason(what: str, tmp_path: Path) -> None:
    path = sample(tmp_path, what)
    kind, message = REFUSED[what]
    with pytest.raises(kind, match=message):
        ts.dispatch.load_library(path)


def test_files_that_are_no_library(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"library: cannot open .*No such file"):
        ts.dispatch.load_library(tmp_path / "missing.so")
    whole = sample(tmp_path).read_bytes()
    (tmp_path / "short.so").write_bytes(whole[:1000])
    with pytest.raises(RuntimeError, match=r"library: cannot open .*cut short"):
        ts.dispatch.load_library(tmp_path / "short.so")
    with pytest.raises(RuntimeError, match="no shared library"):
        ts.dispatch.load_library(HERE / "c_dispatch.c")


def test_a_library_that_changed_is_noticed(tmp_path: Path) -> None:
    path = sample(tmp_path)
    ts.dispatch.load_library(path)
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    with pytest.raises(RuntimeError, match="has changed since it was loaded; restart"):
        ts.dispatch.load_library(path)


def test_unknown_keys_and_kinds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no key named 'Autogard'; did you mean 'Autograd'"):
        ts.dispatch.get_key("Autogard")
    with pytest.raises(ValueError, match="expected a kind among backend, library, plain, got 'dll'"):
        cpp_extension.load_inline("sample", "int x;", kind="dll")
