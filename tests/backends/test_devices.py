"""Default devices and contexts, accessors on tensors and modules, the module of a backend."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
import tesserack as ts

# --- contexts ------------------------------------------------------------------------------------------------------


def test_contexts_belong_to_their_thread():
    seen = []
    with ts.device("meta"):
        thread = threading.Thread(target=lambda: seen.append(ts.ones(1).is_meta))
        thread.start()
        thread.join()
        assert ts.ones(1).is_meta
    assert seen == [False]


def test_one_device_object_in_two_threads():
    shared, inside, out = ts.device("meta"), threading.Event(), threading.Event()

    def other():
        with shared:
            inside.set()
            out.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(10)
    with shared, ts.device("cpu"):
        assert not ts.ones(1).is_meta
    assert not ts.ones(1).is_meta
    out.set()
    thread.join()
    assert not ts.ones(1).is_meta


def test_contexts_may_be_left_in_another_order():
    meta, cpu = ts.device("meta"), ts.device("cpu")
    meta.__enter__()
    cpu.__enter__()
    meta.__exit__(None, None, None)
    assert not ts.ones(1).is_meta
    cpu.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="not entered"):
        meta.__exit__(None, None, None)


def test_devices_decorate_functions_and_generators():
    @ts.device("meta")
    def make(n, *, dtype=ts.int8):
        """Documented."""
        return ts.ones(n, dtype=dtype)

    @ts.device("meta")
    def produce():
        for _ in range(2):
            yield ts.ones(1).is_meta

    assert make(3, dtype=ts.int16).is_meta and make.__name__ == "make" and make.__doc__ == "Documented."
    assert not ts.ones(1).is_meta
    found = []
    for item in produce():
        found.append((item, ts.ones(1).is_meta))
    assert found == [(True, False)] * 2
    with pytest.raises(TypeError):
        ts.device("meta")(int)


def test_contexts_outrank_the_default_of_the_process():
    try:
        ts.set_default_device("meta")
        assert ts.get_default_device().type == "meta"
        with ts.device("cpu"):
            assert ts.get_default_device().type == "cpu" and not ts.ones(1).is_meta
        assert ts.ones(1).is_meta
    finally:
        ts.set_default_device(None)
    assert ts.get_default_device().type == "cpu"


# --- the environment, and the order of preference ------------------------------------------------------------------


def test_default_device_from_the_environment(acme):
    program = (
        "print(ts.get_default_device(), ts.empty(1).device); ts.set_default_device('cpu'); print(ts.ones(1).device);"
    )
    program += "ts.set_default_device(None); print(ts.get_default_device())"
    assert acme.run(program, TESSERACK_DEVICE="acme:1").split() == ["acme:1", "acme:1", "cpu", "acme:1"]
    for value in ("nosuch", "acme:9", "a:b:c"):
        out = acme.run(
            """
            print(ts.ones(1, device="cpu").item())
            for _ in range(2):
                try:
                    ts.ones(1)
                except ts.BackendUnavailableError as error:
                    print(error)
            """,
            TESSERACK_DEVICE=value,
        ).splitlines()
        assert (
            out[0] == "1.0" and len(out) == 3 and out[1] == out[2] and out[1].startswith(f"TESSERACK_DEVICE={value}: ")
        )


def test_priority_is_the_users(acme, library):
    acme.native("empty-pkg", library("empty", "-DDEVICES=0"), "empty")
    out = acme.run(
        """
        import warnings
        assert backends.priority == ("cpu",) and ts.get_default_device().type == "cpu"
        backends.priority = ["acme", "cpu"]
        print(ts.get_default_device())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            backends.priority = ["empty", "cpu"]
            print(ts.get_default_device(), len(caught), "the acme driver is not loaded" in str(caught[0].message))
        ts.set_default_device("meta")
        backends.priority = ["acme"]
        print(ts.get_default_device())
        ts.set_default_device(None)
        print(ts.get_default_device())
        backends.priority = ["empty", "nosuch"]
        try:
            ts.get_default_device()
        except ts.BackendUnavailableError as error:
            print("none of 'empty', 'nosuch' is available" in str(error))
        """
    )
    assert out.splitlines() == ["acme:0", "cpu 1 True", "meta", "acme:0", "True"]


@pytest.mark.parametrize("wrong", [[], ["cpu", "cpu"], ["cpu:0"], [""], [3]])
def test_priority_is_checked(wrong):
    with pytest.raises(ValueError, match="priority"):
        ts.backends.priority = wrong
    assert ts.backends.priority == ("cpu",)


# --- accessors -----------------------------------------------------------------------------------------------------


def test_accessors_of_tensors_and_modules(acme):
    out = acme.run(
        """
        backends.set_fallback("allow")
        x = ts.ones(2)
        assert not ts._native._is_loaded("acme") and not x.is_acme
        y = x.acme()
        print(y.device, y.is_acme, y.is_cpu, x.acme(1).device, x.acme("acme:1").device, y.acme() is y, y.cpu().tolist())
        print(y.acme(device=ts.device("acme", 1), non_blocking=True).device, x.acme.__name__, type(x).acme.__doc__[:11])
        from tesserack import nn
        net = nn.Linear(2, 1)
        print(net.acme() is net, net.weight.device, net.acme(1).bias.device, net.cpu().weight.device)
        for wrong in (7, "cpu"):
            try:
                x.acme(wrong)
            except (RuntimeError, ValueError) as error:
                print(error)
        """
    )
    lines = out.splitlines()
    assert lines[0] == "acme:0 True False acme:1 acme:1 True [1.0, 1.0]"
    assert lines[1] == "acme:1 acme This tensor"
    assert lines[2] == "True acme:0 acme:1 cpu"
    assert "index below 2, got acme:7" in lines[3]
    assert lines[4] == "acme: expected a acme device or an index, got 'cpu'"


def test_accessors_without_a_tensor_on_a_device(acme):
    """Meta tensors and modules without parameters need no backend; their accessors know the names all the same."""
    assert acme.run("print(ts.ones(1, device='meta').is_acme)") == "False\n"
    assert acme.run("from tesserack import nn; print(nn.ReLU().acme())") == "ReLU()\n"
    assert acme.run(
        "from tesserack import nn; print(callable(nn.ReLU().acme), hasattr(nn.ReLU(), 'nosuch'))"
    ).split() == [
        "True",
        "False",
    ]


def test_a_name_that_means_something_takes_nothing_over(site, library):
    site.native("bad-pkg", library("sum"), "sum")
    site.native("worse-pkg", library("nn"), "nn")
    out = site.run(
        """
        print(ts.ones(3).sum().item(), callable(ts.sum), ts.nn.__name__, ts.ones(1, device="nn").device)
        print(ts.get_device_module("nn").device_count(), ts.get_device_module("sum:1").get_device_name(1))
        """
    )
    assert out.splitlines() == ["3.0 True tesserack.nn nn:0", "2 Acme 1"]


def test_an_absent_device_says_what_to_install(site):
    """The names come from the distribution's own metadata: extra x that requires tesserack-x."""
    metadata = "".join(
        f"Provides-Extra: {extra}\nRequires-Dist: {package} ; extra == '{extra}'\n"
        for extra, package in (("warp", "tesserack-warp"), ("examples", "rich>=13"))
    )
    site.package("tesserack", metadata=metadata, version="9.9")
    (site.folder / "tesserack.py").unlink()
    out = site.run(
        """
        from tesserack import nn
        x, net = ts.ones(2), nn.Linear(1, 1)
        for thing in (x, net, nn.Sequential(), ts.Tensor, nn.Module):
            # A class answers for devices that may come, since programs take the method off it.
            assert hasattr(thing, "warp") == isinstance(thing, type) and not hasattr(thing, "examples")
            try:
                thing.warp(x) if isinstance(thing, type) else thing.warp()
            except AttributeError as error:
                print(error)
        print(x.is_warp, ts.warp.is_available(), ts.warp.device_count())
        print(hasattr(ts, "examples"), "warp" in backends.list())
        try:
            ts.warp.current_device()
        except ts.BackendUnavailableError as error:
            print("pip install tesserack-warp" in str(error))
        try:
            net.weights
        except AttributeError as error:
            print(error)
        """
    )
    advice = "object has no attribute 'warp': no backend named 'warp' is installed; try pip install tesserack-warp"
    assert out.splitlines() == [
        *[f"'{name}' {advice}" for name in ("Tensor", "Linear", "Sequential", "Tensor", "Tensor")],
        "False False 0",
        "False False",
        "True",
        "'Linear' object has no attribute 'weights'",
    ]


# --- tesserack.<name> ----------------------------------------------------------------------------------------------


def test_the_module_of_a_backend(acme):
    out = acme.run(
        """
        backends.set_fallback("allow")
        acme = ts.acme
        assert ts.acme is acme and not acme.is_initialized() and not ts._native._is_loaded("acme")
        print(acme.is_available(), acme.device_count(), acme.current_device(), acme.is_initialized())
        print(acme.get_device_name(1), acme.get_device_properties().total_memory, acme.mem_get_info("acme:1"))
        acme.set_device(1)
        print(acme.current_device(), ts.ones(1, device="acme").device, ts.ones(1).acme().device, ts.device("acme:0"))
        with acme.device(0):
            print(ts.ones(1, device="acme").device, ts.ones(1).device)
            with acme.device(-1), acme.device(None):
                print(acme.current_device())
        print(acme.current_device())
        import threading
        thread = threading.Thread(target=lambda: print("other", acme.current_device()))
        thread.start(); thread.join()
        before = acme.memory_allocated()
        x = ts.empty(1 << 20, device="acme")
        size = 4 << 20
        print(acme.memory_allocated() - before >= size, acme.memory_allocated(0), acme.max_memory_allocated() >= size)
        print(acme.memory_reserved() >= size, acme.max_memory_reserved() >= size, "reserved" in acme.memory_stats())
        del x
        acme.empty_cache(); acme.reset_peak_memory_stats(); acme.synchronize(); acme.synchronize(0)
        print(acme.max_memory_allocated() == before, acme.memory_reserved())
        acme.manual_seed(3)
        a = ts.rand(3, device="acme"); acme.manual_seed(3); b = ts.rand(3, device="acme")
        print(a.tolist() == b.tolist(), acme.initial_seed())
        acme.manual_seed_all(5)
        state = acme.get_rng_state()
        c = ts.rand(2, device="acme:0"); acme.set_rng_state(state); acme.set_device(0)
        print(c.tolist() == ts.rand(2, device="acme:1").tolist(), acme.is_bf16_supported())
        for wrong in (lambda: acme.set_device(5), lambda: acme.get_device_name("cpu"), lambda: acme.nothing):
            try:
                wrong()
            except Exception as error:
                print(type(error).__name__)
        """
    )
    assert out.splitlines() == [
        "True 2 0 True",
        "Acme 1 1073741824 (536870912, 1073741824)",
        "1 acme:1 acme:1 acme:0",
        "acme:0 cpu",
        "0",
        "1",
        "other 0",
        "True 0 True",
        "True True True",
        "True 0",
        "True 3",
        "True True",
        "RuntimeError",
        "ValueError",
        "AttributeError",
    ]


@pytest.mark.parametrize("body", ["raise OSError('broken')", "library = '/nowhere.so'", "import sys; sys.exit(3)"])
def test_is_available_never_raises(site, body):
    site.package("acme-pkg", body, backend="acme")
    out = site.run(
        """
        print(ts.acme.is_available(), ts.acme.device_count(), ts.acme.is_bf16_supported())
        ts.acme.manual_seed(1); ts.acme.manual_seed_all(1); ts.acme.empty_cache()
        try:
            ts.acme.current_device()
        except ts.BackendUnavailableError as error:
            print("acme-pkg 1.5" in str(error))
        """
    )
    assert out.split() == ["False", "0", "False", "True"]


def test_the_module_of_the_declared_default():
    assert ts.cpu.is_available() and ts.cpu.device_count() == 1 and ts.cpu.current_device() == 0
    assert ts.get_device_module().__name__ == "tesserack.cpu" and ts.get_device_module(ts.device("cpu")) is ts.cpu
    assert ts.cpu.get_device_name() and ts.cpu.mem_get_info()[1] > 0
    ts.cpu.synchronize()
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        ts.nosuch
    with pytest.raises(ts.BackendUnavailableError, match=r"no backend named .nosuch."):
        ts.get_device_module("nosuch")


def test_two_plugins_at_once(acme, library):
    """Ids and kernels are each backend's own; tensors go from one to the other, and do not mix by accident."""
    acme.native("good-pkg", library("good", "-DDEVICES=1"), "good")
    out = acme.run(
        """
        backends.set_fallback("allow")
        x = ts.arange(6.0).reshape(2, 3).T
        a, g = x.acme(1), x.good()
        print(a.device, g.device, a.good().device, g.acme().device, a.is_good, g.is_good)
        print(a.good().tolist() == g.acme().tolist() == x.tolist(), g.to(a.device).device)
        try:
            a + g
        except RuntimeError as error:
            print("same device" in str(error))
        w = ts.ones(2, 2, device="good", requires_grad=True)
        (w.acme() * 3).sum().backward()
        print(w.grad.device, w.grad.tolist())
        with ts.device("acme"):
            print(ts.ones(1).device, ts.zeros_like(g).device)
        """
    )
    assert out.splitlines() == [
        "acme:1 good:0 good:0 acme:0 False True",
        "True acme:1",
        "True",
        "good:0 [[3.0, 3.0], [3.0, 3.0]]",
        "acme:0 good:0",
    ]


def test_packages_are_advised_only_where_they_are_offered(site, library):
    """Any other name may be anybody's package, or a slip."""
    site.native("nova-pkg", library("nova"), "nova")
    extras = (f"Provides-Extra: {x}\nRequires-Dist: tesserack-{x} ; extra == '{x}'\n" for x in ("warp", "serving"))
    metadata = "".join(extras)
    site.package("tesserack", metadata=metadata, version="9.9")
    info = site.folder / "tesserack-9.9.dist-info" / "entry_points.txt"
    info.write_text("[tesserack.expected_devices]\nloom = tesserack_loom\n")
    (site.folder / "tesserack.py").unlink()
    out = site.run(
        """
        for name in ("nvoa", "warp", "loom", "zzz", "serving"):
            print(backends.why_unavailable(name))
        print(ts.ones(1).is_loom, ts.loom.is_available())
        try:
            ts.ones(2).loom()
        except AttributeError as error:
            print(error)
        """
    )
    assert "cpu" in out and "nova" in out
    have = "is installed;"
    out = re.sub(
        r"\. Expected one of [^\n]* device type at start of device string: (nvoa|warp|loom|zzz|serving)", "", out
    )
    assert re.sub(r" \(installed: [^)]*\)", "", out).splitlines() == [
        f"device: no backend named 'nvoa' {have} did you mean 'nova'?",
        f"device: no backend named 'warp' {have} try pip install tesserack-warp",
        f"device: no backend named 'loom' {have} install the package that brings it, or choose one of these",
        f"device: no backend named 'zzz' {have} install the package that brings it, or choose one of these",
        f"device: no backend named 'serving' {have} install the package that brings it, or choose one of these",
        "False False",
        "'Tensor' object has no attribute 'loom': no backend named 'loom' is installed; "
        "no package for it is offered yet",
    ]


def test_extras_name_packages_that_exist():
    root = Path(__file__).resolve().parents[2]
    text = (root / "pyproject.toml").read_text()
    offered = re.findall(r'^(\w+) = \["tesserack-(\w+)"\]$', text, re.MULTILINE)
    assert ("cpu", "cpu") in offered and ("serving", "serving") in offered
    for extra, name in offered:
        places = [root / kind / name / "pyproject.toml" for kind in ("backends", "plugins")]
        assert extra == name and any(place.is_file() for place in places), name


def test_the_extra_for_all_names_every_package():
    """But for the two that are there to learn from and to test with, and what others bring along."""
    root = Path(__file__).resolve().parents[2]
    (text,) = re.findall(r"^all = (.*)$", (root / "pyproject.toml").read_text(), re.MULTILINE)
    there = {place.parent.name for kind in ("backends", "plugins") for place in root.glob(f"{kind}/*/pyproject.toml")}
    assert {name for name in there if not re.search(rf"\b{name}\b", text)} == {"kernelgen", "null", "reference"}


def test_help_on_backend_lists_the_optional_slots():
    slots = [name for name, value in vars(ts.backends.Backend).items() if value is None]
    assert len(slots) > 10
    assert [name for name in slots if f"``{name}(" not in (ts.backends.Backend.__doc__ or "")] == []
