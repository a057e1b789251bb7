"""What a vendor's card offers beside computing, and who uses it: the profiler, other processes, doctor, recovery."""

from __future__ import annotations

import json

import pytest


def test_the_profiler_shows_what_the_device_did(zeta, tmp_path):
    """Kernels by the number of their call, copies, memory, ranges; in the table and in the trace."""
    out = zeta.script(
        f"""
        import json
        from tesserack.profiler import profile, record_function
        x = ts.ones(64, 64, device="zeta")
        with profile() as prof:
            with record_function("step"):
                y = (x @ x).relu().sum().item()
        done = prof.device_events()
        calls = {{k.number: k.name for k in prof.kernels() if k.device.startswith("zeta")}}
        assert {{d.call for d in done if d.kind == "kernel"}} == calls.keys()
        assert all(d.name == calls[d.call] for d in done if d.kind == "kernel")
        print(sorted({{d.kind for d in done}}))
        rows = {{row.key: row for row in prof.key_averages()}}
        total = sum(d.end - d.start for d in done if d.kind == "kernel")
        assert abs(rows["step"].device_time_total - total) < 1e-6 * total + 1e-3
        assert rows["matmul"].device_time_total > 0 and rows["step"].self_device_time_total == 0
        table = prof.key_averages().table(sort_by="cuda_time_total")
        assert "Self Device" in table and "Self device time total" in table
        prof.export_chrome_trace({str(tmp_path / "trace.json")!r})
        """
    )
    assert out.splitlines() == ["['copy', 'kernel', 'memory', 'range']"]
    records = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (device,) = (r["pid"] for r in records if r["name"] == "process_name" and r["args"]["name"] == "zeta:0")
    assert {"matmul", "step", "to host"} <= {r["name"] for r in records if r["pid"] == device and r["ph"] == "X"}
    assert {r["ph"] for r in records if r.get("cat") == "ac2g"} == {"s", "f"}


def test_devices_and_doctor_say_who_and_how_linked(zeta):
    told = zeta.run("-m", "tesserack", "devices", "zeta").stdout
    assert "device 1  uuid 7a657461-2073-696d-756c-617465642001, bus 0000:02:00.0, numa_node 0" in told, told
    assert "link      zeta:0 copies to zeta:1 through the host at 25.0 GB/s" in told
    assert "profiler sharing recovery" in told
    told = zeta.run("-m", "tesserack", "doctor").stdout
    assert "zeta:0 copies to zeta:1 through the host at 25.0 GB/s" in " ".join(told.split()), told
    out = zeta.script(
        """
        print(ts.backends.identity("zeta:1").bus, ts.backends.link("zeta:0", "zeta:1").bandwidth)
        print(ts.backends.identity("cpu"), ts.backends.link("zeta:0", "cpu"))
        """
    )
    assert out.splitlines() == [
        "0000:02:00.0 25000000000",
        "Identity(uuid=None, bus=None, numa_node=None) None",
    ]


@pytest.mark.parametrize("way", ["spawn", "fork"])
def test_processes_use_one_memory(zeta, way):
    """A child writes into the parent's tensor; its views and strides arrive; the owner lets go when nobody is left."""
    (zeta.folder / "shares.py").write_text(
        """
import tesserack as ts
from tesserack import multiprocessing as mp
from tesserack.multiprocessing import _on_device

def child(given, queue, end):
    x, turned = given
    assert str(x.device) == "zeta:1" and turned.stride() == (1, 4) and turned.tolist()[1] == [1.0, 5.0, 9.0]
    x[0] = -1.0
    turned[0, 2] = 100.0
    ts.synchronize(x.device)
    queue.put(x[4:8])  # back where it came from: memory that was imported is not shared on, and goes by value
    end.get()

if __name__ == "__main__":
    context = mp.get_context(WAY)
    x = ts.arange(12.0, device="zeta:1")
    queue, end = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=child, args=((x, x.view(3, 4).t()), queue, end))
    process.start()
    back = queue.get()
    print(x[0].item(), x[8].item(), back.tolist())
    assert _on_device.collect() >= (1 if WAY == "spawn" else 0)
    end.put(None)
    process.join()
    assert process.exitcode == 0
    del process
    print("left", _on_device.collect())
""".replace("WAY", repr(way))
    )
    done = zeta.run("shares.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["-1.0 100.0 [4.0, 5.0, 6.0, 7.0]", "left 0"]


def test_a_lost_device_ends_in_words_and_is_recovered(zeta):
    """What was on it raises, what is made afterwards computes; optimizers start from a checkpoint."""
    out = zeta.script(
        """
        import io
        model = ts.nn.Linear(4, 2).to("zeta:1")
        saved = io.BytesIO()
        ts.save(model.state_dict(), saved)
        other = ts.ones(3, device="zeta:0")
        try:
            ts.empty(66613, dtype=ts.uint8, device="zeta:1")
        except ts.DeviceLostError as error:
            print(error)
        for use in (lambda: model(ts.ones(1, 4, device="zeta:1")), lambda: model.weight.cpu(),
                    lambda: ts.synchronize("zeta:1")):
            try:
                use()
            except ts.DeviceLostError as error:
                assert isinstance(error, RuntimeError) and "fell off its bus" in str(error)
            else:
                raise AssertionError("a lost device was used")
        print((other + 1).tolist())
        ts.backends.recover("zeta:1")
        try:
            model(ts.ones(1, 4, device="zeta:1"))
        except ts.DeviceLostError as error:
            print(error)
        saved.seek(0)
        state = ts.load(saved, map_location="cpu")
        fresh = ts.nn.Linear(4, 2)
        fresh.load_state_dict(state)
        on_card = fresh.to("zeta:1")
        found = on_card(ts.ones(1, 4, device="zeta:1")).cpu()
        expected = state["weight"].sum(1) + state["bias"]
        assert ts.allclose(found[0], expected), (found, expected)
        del model  # whose memory is nobody's any more
        print(ts.memory_stats("zeta:1")["allocated"] < 4096)
        try:
            ts.backends.recover("cpu")
        except RuntimeError as error:
            print(error)
        """
    )
    lines = out.splitlines()
    assert "zeta:1 fell off its bus" in lines[0] and "tesserack.backends.recover('zeta:INDEX')" in lines[0], lines
    assert lines[1] == "[2.0, 2.0, 2.0]"
    assert "expected a tensor made since zeta:1 was recovered, got one of before" in lines[2]
    assert lines[3:] == [
        "True",
        "recover: backend 'cpu' cannot make a lost device usable again; start the process anew",
    ]
