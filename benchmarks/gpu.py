"""Take the figures that a GPU is held to, in one go: against PyTorch where it sees the device, and against copies.

    python benchmarks/gpu.py                     # all rows on cuda; a file of results/ and a table
    python benchmarks/gpu.py --rows matmul host  # rows whose names contain one of these
    python benchmarks/gpu.py --device cpu --small --rounds 1 --no-file   # whether it runs

Each framework has processes of its own, which take turns. A row's time is the median over the rounds.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import operator
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Figure(NamedTuple):
    """``seconds`` of one call, and what it moves or computes in that time. ``limit``: see ``verdict``."""

    name: str
    seconds: float
    bytes: int = 0
    products: int = 0
    against: str = "torch"  # or the name of the row whose bandwidth it is held to
    limit: float = 1.0  # of torch's time, or the least part of the other row's bandwidth


class Bench:
    """One framework on one device."""

    def __init__(self, name: str, device: str, small: bool):
        self.fw: Any = importlib.import_module(name)
        self.device, self.small = device, small
        self.module: Any = getattr(self.fw, device.partition(":")[0], None)
        self.asynchronous = device.partition(":")[0] != "cpu"

    def wait(self) -> None:
        """Until the device has done all work."""
        if self.asynchronous:
            self.module.synchronize()

    def seconds(self, call: Callable[[], Any], least: float = 0.3) -> float:
        """Of a call, after some that are not timed; many are queued before the device is waited for."""
        for _ in range(3):
            call()
        self.wait()
        count, least = 1, 0.02 if self.small else least
        while True:
            began = time.perf_counter()
            for _ in range(count):
                call()
            self.wait()
            took = time.perf_counter() - began
            if took >= least:
                return took / count
            count = max(count + 1, int(count * min(2 * least / max(took, 1e-9), 10)))

    def host_seconds(self, call: Callable[[], Any]) -> float:
        """Until a call returns, with so few under way that the queue does not fill."""
        times = []
        for _ in range(20):
            self.wait()
            began = time.perf_counter()
            for _ in range(200):
                call()
            times.append((time.perf_counter() - began) / 200)
        return statistics.median(times)

    def randn(self, *sizes: int, dtype: str = "float32") -> Any:
        return self.fw.randn(*sizes, device=self.device).to(getattr(self.fw, dtype))


Rows = Iterator[tuple[str, Callable[[], Figure]]]


def matmul_rows(b: Bench) -> Rows:
    n = 128 if b.small else 8192
    for dtype in ("bfloat16", "float16", "float32"):

        def measure(dtype: str = dtype) -> Figure:
            x, y = b.randn(n, n, dtype=dtype), b.randn(n, n, dtype=dtype)
            limit = 1 / 0.97
            return Figure(f"matmul {n}^3 {dtype}", b.seconds(lambda: x @ y), products=2 * n**3, limit=limit)

        yield f"matmul {dtype}", measure


def memory_rows(b: Bench) -> Rows:
    rows, width = (64, 256) if b.small else (16384, 8192)
    calls: dict[str, tuple[float, Callable[[Any, Any], Callable[[], Any]]]] = {
        "copy": (2, lambda x, y: lambda: y.copy_(x)),
        "pointwise a + b": (3, lambda x, y: lambda: x + y),
        "pointwise exp": (2, lambda x, y: lambda: x.exp()),
        "pointwise gelu": (2, lambda x, y: lambda: b.fw.nn.functional.gelu(x)),
        "pointwise rows + vector": (2, lambda x, y: functools.partial(operator.add, x, y[0].clone())),
        "pointwise transposed copy": (2, lambda x, y: lambda: x.t().contiguous()),
        "reduction of all": (1, lambda x, y: lambda: x.sum()),
        "reduction of rows": (1, lambda x, y: lambda: x.sum(1)),
        "reduction of columns": (1, lambda x, y: lambda: x.sum(0)),
        "reduction softmax": (2, lambda x, y: lambda: x.softmax(1)),
    }
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        for name, (passes, make) in calls.items():

            def measure(
                name: str = name, passes: float = passes, make: Any = make, dtype: str = dtype, size: int = size
            ) -> Figure:
                x, y = b.randn(rows, width, dtype=dtype), b.randn(rows, width, dtype=dtype)
                moved = int(passes * rows * width * size)
                return Figure(f"{name} {dtype}", b.seconds(make(x, y)), moved, against=f"copy {dtype}", limit=0.9)

            yield f"{name} {dtype}", measure


def host_rows(b: Bench) -> Rows:
    def measure() -> Figure:
        x, y = b.randn(16), b.randn(16)
        x + y
        return Figure("host time of a + b", b.host_seconds(lambda: x + y), limit=0.5)

    yield "host time", measure


def _gpt(b: Bench) -> Any:
    fw, nn = b.fw, b.fw.nn
    width, heads, layers, words, length = (64, 4, 2, 500, 32) if b.small else (768, 12, 12, 50257, 1024)

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            n, t, _ = x.shape
            parts = self.attention(self.before(x)).reshape(n, t, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            seen = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
            x = x + self.mixed(seen.transpose(1, 2).reshape(n, t, width))
            return x + self.down(nn.functional.gelu(self.up(self.between(x)), approximate="tanh"))

    class GPT(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks, self.last = nn.Sequential(*(Block() for _ in range(layers))), nn.LayerNorm(width)

        def forward(self, ids: Any) -> Any:
            places = fw.arange(ids.shape[1], device=ids.device)
            return self.last(self.blocks(self.words(ids) + self.places(places))) @ self.words.weight.t()

    batch = 2 if b.small else 8
    ids = fw.randint(0, words, (batch, length), device=b.device)
    model = GPT().to(b.device).to(fw.bfloat16)
    return model, ids, lambda out: nn.functional.cross_entropy(out.reshape(-1, words).float(), ids.reshape(-1))


def _resnet(b: Bench) -> Any:
    fw, nn = b.fw, b.fw.nn

    class Bottleneck(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            after = 4 * width
            self.one, self.one_norm = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
            self.two, self.two_norm = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.three, self.three_norm = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
            self.skip: Any = None
            if stride != 1 or before != after:
                self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

        def forward(self, x: Any) -> Any:
            y = self.one_norm(self.one(x)).relu()
            y = self.three_norm(self.three(self.two_norm(self.two(y)).relu()))
            return (y + (x if self.skip is None else self.skip(x))).relu()

    layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for stage, count in enumerate((1, 1, 1, 1) if b.small else (3, 4, 6, 3)):
        for k in range(count):
            layers.append(Bottleneck(before, 64 << stage, 2 if stage and not k else 1))
            before = 256 << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)]
    batch, size = (2, 64) if b.small else (128, 224)
    model = nn.Sequential(*layers).to(b.device).to(fw.bfloat16).to(memory_format=fw.channels_last)
    x = b.randn(batch, 3, size, size, dtype="bfloat16").to(memory_format=fw.channels_last)
    y = fw.randint(0, 1000, (batch,), device=b.device)
    return model, x, lambda out: nn.functional.cross_entropy(out.float(), y)


def _step(b: Bench, make: Callable[[Bench], Any], captured: bool) -> Callable[[], Any]:
    """A training step; captured, all but the optimizer's is one graph."""
    model, x, loss_of = make(b)
    optimizer = b.fw.optim.AdamW(model.parameters(), lr=1e-4)

    def gradients() -> Any:
        loss = loss_of(model(x))
        loss.backward()
        return loss

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = gradients()
        optimizer.step()
        return loss

    if not captured:
        return step
    side = b.module.Stream()
    side.wait_stream(b.module.current_stream())
    with b.module.stream(side):
        for _ in range(3):
            step()
    b.module.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = b.module.CUDAGraph()
    with b.module.graph(graph):
        gradients()

    def replayed(inputs: Any = (model, x, loss_of)) -> None:  # whose memory the graph reads
        graph.replay()
        optimizer.step()

    return replayed


def model_rows(b: Bench) -> Rows:
    makers: dict[str, tuple[Callable[[Bench], Any], bool, float]] = {
        "GPT-2 small, bf16, step": (_gpt, False, 1.0),
        "GPT-2 small, bf16, step captured": (_gpt, True, 0.85),
        "ResNet-50, bf16, step": (_resnet, False, 1.0),
    }
    for name, (make, captured, limit) in makers.items():
        if captured and not hasattr(b.module, "CUDAGraph"):
            continue

        def measure(name: str = name, make: Any = make, captured: bool = captured, limit: float = limit) -> Figure:
            # A captured step is held to PyTorch's eager one.
            against = "torch:" + name.removesuffix(" captured")
            return Figure(name, b.seconds(_step(b, make, captured), 2.0), against=against, limit=limit)

        yield name, measure


def measured(b: Bench, wanted: list[str]) -> list[dict[str, Any]]:
    """The figures of one framework; of a row that fails, the error."""
    found = []
    for rows in (matmul_rows, memory_rows, host_rows, model_rows):
        for name, measure in rows(b):
            if wanted and not any(part in name for part in wanted):
                continue
            try:
                found.append(measure()._asdict())
            except Exception as error:
                found.append({"name": name, "error": f"{type(error).__name__}: {str(error)[:300]}"})
            print(".", end="", file=sys.stderr, flush=True)
    return found


def run(framework: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures of a framework in a process of its own."""
    command = [sys.executable, __file__, "--framework", framework, "--device", arguments.device]
    command += ["--small"] * arguments.small + (["--rows", *arguments.rows] if arguments.rows else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"gpu: {framework} ended with status {done.returncode}")
    figures: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def verdict(row: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """The figure beside what it is held to."""
    if "error" in row:
        return str(row["error"])
    if row["bytes"]:
        told, copies = f"{row['bytes'] / row['seconds'] / 1e9:.0f} GB/s", ours.get(row["against"])
        if copies is None or copies is row or "error" in copies:
            return told
        part = row["bytes"] / row["seconds"] * copies["seconds"] / copies["bytes"]
        return f"{told}, {part:.2f} of copies (at least {row['limit']}): {'yes' if part >= row['limit'] else 'NO'}"
    told = f"{row['products'] / row['seconds'] / 1e12:.1f} TFLOP/s, " if row["products"] else ""
    other = theirs.get(row["against"].partition(":")[2] or row["name"])
    if other is None or "error" in other:
        return told + "not compared"
    ratio = row["seconds"] / other["seconds"]
    return (
        f"{told}{ratio:.2f} of PyTorch's time (at most {row['limit']:.2f}): {'yes' if ratio <= row['limit'] else 'NO'}"
    )


def medians(rounds: list[list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Rows by name, each with its median time."""
    found: dict[str, dict[str, Any]] = {}
    for row in rounds[0] if rounds else []:
        same = [r for figures in rounds for r in figures if r["name"] == row["name"]]
        failed = next((r for r in same if "error" in r), None)
        found[row["name"]] = failed or {**row, "seconds": statistics.median(r["seconds"] for r in same)}
    return found


def _torch_sees(device: str) -> bool:
    if device.startswith("cuda"):
        program = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    else:
        program = "import torch"
    return subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="sizes that take no time, to see that it runs")
    parser.add_argument("--no-file", action="store_true")
    parser.add_argument("--framework", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.framework:
        print(json.dumps(measured(Bench(arguments.framework, arguments.device, arguments.small), arguments.rows)))
        return
    names = ["tesserack"] + ["torch"] * _torch_sees(arguments.device)
    taken: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in names}
    for _ in range(arguments.rounds):
        for name in names:
            taken[name].append(run(name, arguments))
    print(file=sys.stderr)
    ours, theirs = medians(taken["tesserack"]), medians(taken.get("torch", []))
    for name, row in ours.items():
        shown = "" if "error" in row else f"{row['seconds'] * 1e6:12.1f} us  "
        print(f"{name:36} {shown}{verdict(row, ours, theirs)}")
    if arguments.no_file:
        return
    import tesserack

    module = tesserack.get_device_module(arguments.device.partition(":")[0])
    machine = module.get_device_name() if hasattr(module, "get_device_name") else platform.processor()
    told = {
        "device": machine,
        "date": date.today().isoformat(),
        "tesserack": ours,
        "torch": theirs,
    }
    slug = "".join(c if c.isalnum() else "-" for c in machine.lower()).strip("-")
    path = HERE / "results" / "gpu" / f"{date.today().isoformat()}-{slug}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(told, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
