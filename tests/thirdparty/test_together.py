"""Devices of four packages in one process, and packages that are broken next to them."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# Trains the model of the digits example for a few steps, everywhere from the same seed.
TRAIN = f"""
    import sys, contextlib, io
    sys.path.insert(0, {str(ROOT / "examples")!r})
    import digits

    def trained(device):
        # Gradients of the first batch, and the loss after a few steps: later weights depend on the sign of noise. No
        # dropout: each device draws from a generator of its own.
        ts.manual_seed(0)
        data, _ = digits.load_digits("cpu")
        part = digits.TensorDataset(*(t[:96].to(device) for t in data.tensors))
        model = digits.make_model().to(device)
        model[12].p = 0.0
        loss = digits.nn.CrossEntropyLoss()
        loss(model(part.tensors[0][:16]), part.tensors[1][:16]).backward()
        gradients = [p.grad.cpu() for p in model.parameters()]
        with contextlib.redirect_stdout(io.StringIO()):
            digits.fit(model, part, 2, 16)
        return gradients, loss(model(part.tensors[0]), part.tensors[1]).item()

    def check_training(devices):
        expected, loss = trained("cpu")
        for device in devices:
            found, learned = trained(device)
            worst = max(((f - e).abs().max() / e.abs().max()).item() for f, e in zip(found, expected))
            same = worst < 1e-3 and abs(learned / loss - 1) < 0.1 and learned < 2.2
            print("trained on", device, "as on cpu" if same else f"off by {{worst}}; {{loss}}, {{learned}}")
"""


@pytest.fixture
def four(zeta):
    """The core, cpu, reference, acme in Python and zeta in C++."""
    pytest.importorskip("sklearn", reason="the scans come with scikit-learn")
    zeta.install(ROOT / "plugins" / "reference")
    zeta.install(HERE / "acme_python")
    return zeta


def test_four_packages_in_one_process(four):
    out = four.script(
        TRAIN,
        """
        print([name for name in ts.backends.list() if name not in ("null", "opencl", "cuda")])  # as a developer has too
        ts.backends.set_fallback("allow")
        check_training(["reference", "acme:1", "zeta:1"])
        counts = ts.backends.fallbacks()
        print("counted" if counts else "no fallbacks at all")

        places = ["cpu", "reference", "acme:0", "acme:1", "zeta:0", "zeta:1"]
        for dtype in (ts.float32, ts.int64, ts.bool, ts.uint8):
            x = (ts.arange(24) % 7).to(dtype).reshape(2, 3, 4)
            for a in places:
                for b in places:
                    y = x.to(a)[:, 1:].transpose(0, 2).to(b)
                    assert y.device == ts.device(b) and y.tolist() == x[:, 1:].transpose(0, 2).tolist(), (a, b)
                    target = ts.zeros(4, 3, dtype=dtype, device=b)[:, ::2]
                    target.copy_(x[0, :2].t().to(a))
                    assert target.tolist() == x[0, :2].t().tolist(), (a, b)
        print("moved")
        try:
            ts.ones(2, device="acme:0") + ts.ones(2, device="zeta:1")
        except RuntimeError as error:
            print(error)
        for device in ("acme", "zeta"):
            try:
                ts.empty(1 << 30, device=device)
            except ts.OutOfMemoryError as error:
                print("no more memory", device in str(error))
            print((ts.ones(3, device=device) * 2).sum().item())
        """,
    )
    lines = out.splitlines()
    assert lines[0] == "['acme', 'cpu', 'reference', 'zeta']"
    assert lines[1:4] == [f"trained on {d} as on cpu" for d in ("reference", "acme:1", "zeta:1")]
    assert lines[4:6] == ["counted", "moved"]
    assert "Expected all tensors to be on the same device" in lines[6]
    assert lines[7:] == ["no more memory True", "6.0"] * 2


def test_required_kernels_need_no_help(four):
    """Neither the reference nor zeta has the cpu compute anything."""
    out = four.script(
        TRAIN,
        """
        ts.backends.set_fallback("error")
        check_training(["reference", "zeta:0"])
        print(ts.backends.fallbacks())
        """,
    )
    assert out.splitlines() == ["trained on reference as on cpu", "trained on zeta:0 as on cpu", "{}"]


BROKEN = {
    "faulty": "device: the backend 'faulty' from faulty-pkg 0.1 (faulty_pkg:library) failed to load: "
    "OSError: the driver is too old",
    "alien": "was built for ABI 7.x, this core speaks 2.",
    "absent": "is installed but has no device: no card in any slot",
    "rogue": "calls itself 'zeta', but is announced as 'rogue'",
}


def install_broken(environment, compiled):
    environment.module("faulty-pkg", "faulty", "raise OSError('the driver is too old')")
    alien = compiled("alien", [alien_source(environment)], '-DNAME="alien"')
    environment.module("alien-pkg", "alien", f"library = {str(alien)!r}")
    environment.module(
        "absent-pkg",
        "absent",
        """
        from tesserack.backends import Backend

        class Absent(Backend):
            name, vendor = "absent", "com.example.absent"
            def probe(self):
                return 0, "no card in any slot"

        library = Absent()
        """,
    )
    environment.module("rogue-pkg", "rogue", "from tesserack_zeta import library")


def alien_source(environment):
    """The plugin of the ABI tests, of another major."""
    plugin = (ROOT / "tests" / "abi" / "plugin.c").read_text()
    source = environment.folder.parent / "alien.cpp"
    entry = 'extern "C" int tesserack_backend(const ts_host*, const ts_backend**);'
    source.write_text(f"#define MAJOR 7\n#include <tesserack/abi.h>\n{entry}\n{plugin}")
    return source


def test_broken_packages_harm_no_one(four, compiled):
    install_broken(four, compiled)
    out = four.script(
        f"""
        for name in {list(BROKEN)!r}:
            for _ in range(2):
                try:
                    ts.ones(2, device=name)
                except ts.BackendUnavailableError as error:
                    print(name, "|", error)
        ts.backends.set_fallback("allow")
        for name in ("cpu", "reference", "acme", "zeta"):
            x = ts.ones(2, 2, device=name, requires_grad=True)
            (x @ x).sum().backward()
            print(name, x.grad.tolist())
        print([n for n in ts.backends.list() if n not in ("null", "opencl", "cuda") and ts.backends.get(n).available])
        """
    )
    lines = out.splitlines()
    for k, (name, message) in enumerate(BROKEN.items()):
        assert lines[2 * k] == lines[2 * k + 1] and lines[2 * k].startswith(f"{name} | ") and message in lines[2 * k]
    assert lines[8:12] == [f"{name} [[4.0, 4.0], [4.0, 4.0]]" for name in ("cpu", "reference", "acme", "zeta")]
    assert lines[12] == "['acme', 'cpu', 'reference', 'zeta']"


def test_a_taken_name(four):
    """The two that claim it are named, and neither is used; the others go on."""
    four.module("copycat", "acme", "from tesserack_zeta import library")
    out = four.script(
        """
        try:
            ts.ones(2, device="acme")
        except ts.BackendUnavailableError as error:
            print(error)
        print(ts.ones(2, device="zeta").sum().item(), ts.ones(2, device="reference").sum().item())
        """
    )
    message, numbers = out.splitlines()
    assert "'acme' is claimed by acme-devices 2.3.1 and copycat 0.1; uninstall one of them" in message
    assert numbers == "2.0 2.0"
