"""``torch.save`` and ``torch.load`` under the hook: whole objects, and files that pass between the two libraries."""

from __future__ import annotations

import importlib.util

import pytest

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch to exchange files with")

NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(2, 3)
            self.second = nn.Linear(3, 3)
            self.second.weight.data = torch.arange(9.0).view(3, 3)

        def forward(self, x):
            return self.second(self.first(x).relu())
"""

ROUND_TRIP = """
    import argparse, collections, io, pickle, random
    import numpy as np

    def again(value, **options):
        file = io.BytesIO()
        torch.save(value, file)
        file.seek(0)
        return torch.load(file, **options)

    net = Net()
    net.first.weight = nn.Parameter(torch.ones(3, 2))
    back = again(net, weights_only=False)
    x = torch.ones(1, 2)
    print(type(back).__name__, torch.equal(back(x), net(x)), isinstance(back.first.weight, nn.Parameter))

    shared = torch.arange(6.0)
    first, second = again([shared, shared.view(2, 3)[1]])
    second.zero_()
    print(first.tolist())

    class Marked(torch.Tensor):
        pass

    marked = again(torch.ones(2).as_subclass(Marked), weights_only=False)
    print(type(marked).__name__, marked.tolist())

    state = {"numpy": np.random.get_state(), "python": random.getstate(), "args": argparse.Namespace(lr=0.1)}
    found = again(state, weights_only=False)
    print((found["numpy"][1] == state["numpy"][1]).all(), found["python"] == state["python"], found["args"])
    print(again({"kind": torch.bfloat16, "device": torch.device("cpu"), "size": torch.Size([2]), "set": {1, 2}}))
    print(type(again(collections.defaultdict(list, a=[1]))).__name__, [t.dtype for t in again(
        [torch.ones(2, dtype=torch.uint16), torch.tensor([True]), torch.ones(0).half()])])

    for refused in (net, {"a": np.arange(3)}):
        try:
            again(refused)
        except pickle.UnpicklingError as error:
            print("refused", "Weights only load failed" in str(error))
    with torch.serialization.safe_globals([Net, nn.Linear]):
        print(type(again({"n": collections.OrderedDict(a=torch.ones(1))})["n"]).__name__)
        try:
            again(argparse.Namespace(a=1))
        except pickle.UnpicklingError as error:
            print("argparse.Namespace" in str(error))
"""


def test_whole_objects_come_back(program):
    assert program.run(NET + ROUND_TRIP) == [
        "Net True True",
        "[0.0, 1.0, 2.0, 0.0, 0.0, 0.0]",
        "Marked [1.0, 1.0]",
        "True True Namespace(lr=0.1)",
        "{'kind': torch.bfloat16, 'device': device(type='cpu'), 'size': torch.Size([2]), 'set': {1, 2}}",
        "defaultdict [torch.uint16, torch.bool, torch.float16]",
        "refused True",
        "refused True",
        "OrderedDict",
        "True",
    ]


WRAPPER = """
    import io, torch

    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            got = func(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {}))
            return cls(got) if isinstance(got, torch.Tensor) else got

    for old in (False, True):
        wrapped, file = Wrapped(torch.arange(6.0).view(2, 3).t()), io.BytesIO()
        torch.save([wrapped, wrapped], file, _use_new_zipfile_serialization=not old)
        file.seek(0)
        first, second = torch.load(file, weights_only=False)
        print(type(first).__name__, first is second, first.stride(), (first + 1).inner.tolist())
"""


def test_tensors_without_memory_come_back(program):
    line = "Wrapped True (1, 3) [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]"
    assert program.run(WRAPPER) == [line, line]


def test_a_file_runs_nothing_unless_it_is_trusted(program):
    lines = program.run(
        """
        import os, torch

        class Planted:
            def __reduce__(self):
                return os.mkdir, ("made",)

        torch.save(Planted(), "planted.pt")
        for options in ({}, {"weights_only": True}):
            try:
                torch.load("planted.pt", **options)
            except RuntimeError:
                print(os.path.exists("made"))
        torch.serialization.add_safe_globals([set])
        try:
            torch.load("planted.pt")
        except RuntimeError:
            print(os.path.exists("made"))
        torch.load("planted.pt", weights_only=False)
        print(os.path.exists("made"))
        """
    )
    assert lines == ["False", "False", "False", "True"]


KINDS = """
import sys, torch
sparse = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,))
kinds = {
    "coo": sparse,
    "coalesced": sparse.coalesce(),
    "csr": torch.eye(3).to_sparse_csr(),
    "bsc": torch.eye(4).to_sparse_bsc((2, 2)),
    "rows": torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)]),
    "ragged": torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)], layout=torch.jagged),
    "conj": torch.tensor([1 + 2j]).conj(),
    "neg": torch.tensor([1 + 2j]).conj().imag,
    "half": torch.ones(2, dtype=torch.uint16),
    "parameter": torch.nn.Parameter(sparse),
}
kinds["meta"] = torch.empty(2, 3, device="meta")
kinds["object"] = slice(1, 2)  # so that it takes Python's pickle
if sys.argv[1] == "write":
    torch.save(kinds, "kinds.pt")
found = torch.load("kinds.pt", weights_only=False)
plain = lambda t: [*map(plain, t.unbind())] if t.is_nested else t.to_dense().resolve_conj().tolist()
assert found.keys() == kinds.keys()
assert found["meta"].is_meta and found["meta"].shape == (2, 3)
for name in list(kinds)[:-2]:
    assert plain(found[name]) == plain(kinds[name]), (name, found[name])
    assert found[name].layout == kinds[name].layout and found[name].dtype == kinds[name].dtype, name
assert found["coalesced"].is_coalesced() and not found["coo"].is_coalesced() and found["conj"].is_conj()
"""


@needs_torch
@pytest.mark.parametrize("writer", ["torch", "tesserack"])
def test_tensors_of_every_layout_pass_among_objects(program, writer):
    starts = [[], ["-m", "tesserack", "run"]]
    path = program.write("kinds.py", KINDS)
    for start, mode in zip(starts if writer == "torch" else starts[::-1], ("write", "read"), strict=True):
        done = program.start(*start, str(path), mode)
        assert done.returncode == 0, done.stderr


WRITE = """
    net = Net()
    torch.save(net, "{name}.net")
    torch.save({{"net": net.state_dict(), "epoch": 3, "kind": torch.float16}}, "{name}.state")
"""
READ = """
    net = torch.load("{name}.net", weights_only=False)
    state = torch.load("{name}.state")
    fresh = Net()
    print(fresh.load_state_dict(state["net"]), state["epoch"], state["kind"])
    print(torch.equal(net(torch.ones(1, 2)), fresh(torch.ones(1, 2))))
"""


@needs_torch
@pytest.mark.parametrize("writer", ["torch", "tesserack"])
def test_files_pass_between_the_libraries(program, writer):
    ours = ["-m", "tesserack", "run"]
    starts = {"torch": ([], ours), "tesserack": (ours, [])}[writer]
    for start, source in zip(starts, (WRITE, READ), strict=True):
        path = program.write("program.py", NET + source.format(name=writer))
        done = program.start(*start, str(path))
        assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["<All keys matched successfully> 3 torch.float16", "True"]


FUNCTIONS = """
import sys, torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.acts = [F.relu, F.gelu, torch.einsum, torch.linalg.det, torch.special.erfcx, F.softmax, torch.sub]

    def forward(self, x):
        x = self.acts[2]("ij->ij", self.acts[0](self.first(x)))
        return self.acts[1](x) * self.acts[3](torch.eye(2)) + self.acts[4](torch.zeros(1))

if sys.argv[1] == "write":
    net = Net().eval()
    torch.save(net, "net.pt")
    torch.save({"net": net, "bits": torch.tensor([True, False])}, "net.old", _use_new_zipfile_serialization=False)
    torch.save(net(torch.ones(2, 3)), "result.pt")
else:
    want = torch.load("result.pt")
    old = torch.load("net.old", weights_only=False)
    for net in (torch.load("net.pt", weights_only=False), old["net"]):
        assert torch.allclose(net(torch.ones(2, 3)), want)
    assert old["bits"].tolist() == [True, False]
    print("tesserack" in sys.modules)
    try:
        torch.load("net.old")
    except Exception as error:
        print(isinstance(error, __import__("pickle").UnpicklingError))
"""


@needs_torch
@pytest.mark.parametrize("writer", ["torch", "tesserack"])
def test_modules_with_functions_pass_in_both_forms(program, writer):
    starts = [[], ["-m", "tesserack", "run"]]
    path = program.write("functions.py", FUNCTIONS)
    for start, mode in zip(starts if writer == "torch" else starts[::-1], ("write", "read"), strict=True):
        done = program.start(*start, str(path), mode)
        assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(writer == "torch"), "True"]


@needs_torch
def test_plain_pickles_of_torch_open(program):
    write = """
        import pickle, torch
        parts = [torch.arange(6.0).view(2, 3).t(), torch.ones(2).bfloat16(), torch.nn.Parameter(torch.tensor([3.0]))]
        pickle.dump({"parts": parts, "layer": torch.nn.Linear(1, 1)}, open("p.pkl", "wb"))
    """
    read = """
        import pickle, torch
        found = pickle.load(open("p.pkl", "rb"))
        print([(p.tolist(), p.stride(), str(p.dtype), type(p).__name__) for p in found["parts"]], found["layer"])
    """
    printed = []
    for start, source in (([], write), ([], read), (["-m", "tesserack", "run"], read)):
        done = program.start(*start, str(program.write("program.py", source)))
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[1] == printed[2] and "3.0" in printed[1]


def test_safetensors_reads_and_writes(program):
    pytest.importorskip("safetensors")
    lines = program.run(
        """
        import torch
        from safetensors.torch import load, load_file, load_model, safe_open, save, save_file, save_model

        tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.zeros(0), "c": torch.ones(2).bfloat16()}
        save_file(tensors, "f.safetensors", metadata={"x": "y"})
        found = load_file("f.safetensors")
        print(all(torch.equal(found[k], v) and found[k].dtype == v.dtype for k, v in tensors.items()))
        with safe_open("f.safetensors", framework="pt", device="cpu") as f:
            print(f.metadata(), f.get_slice("a")[:, 1:2].tolist(), f.get_tensor("c").dtype)
        print(sorted(load(save(tensors))))
        layer = torch.nn.Linear(2, 2)
        save_model(layer, "m.safetensors")
        print(load_model(torch.nn.Linear(2, 2), "m.safetensors"))
        """
    )
    assert lines == ["True", "{'x': 'y'} [[1.0], [4.0]] torch.bfloat16", "['a', 'b', 'c']", "(set(), [])"]


def test_a_storage_is_mapped_from_a_file(program):
    lines = program.run(
        """
        import torch

        with open("bytes", "wb") as file:
            file.write(bytes(range(8)))
        private = torch.UntypedStorage.from_file("bytes", shared=False, nbytes=8)
        part = private[2:6]
        torch.asarray(part, dtype=torch.uint8).view(torch.int16).zero_()
        print(private.tolist(), len(part), part[1:3].data_ptr() - private.data_ptr(), open("bytes", "rb").read()[3])
        shared = torch.UntypedStorage.from_file("bytes", shared=True, nbytes=10)
        shared[0] = 7
        print(list(open("bytes", "rb").read()))
        try:
            torch.UntypedStorage.from_file("bytes", nbytes=11)
        except ValueError as error:
            print(error)
        print(torch.UntypedStorage(3).tolist() is not None, len(torch.UntypedStorage(3)))
        """
    )
    assert lines == [
        "[0, 1, 0, 0, 0, 0, 6, 7] 4 3 3",
        "[7, 1, 2, 3, 4, 5, 6, 7, 0, 0]",
        "from_file: bytes has 10 bytes, expected at least 11",
        "True 3",
    ]


def test_states_by_way_of_the_distributed_checkpoint(program):
    lines = program.run(
        """
        import torch
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict

        net = torch.nn.Linear(2, 1)
        net.bias.requires_grad_(False)
        options = StateDictOptions(cpu_offload=True, ignore_frozen_params=True)
        print(list(get_model_state_dict(net, options=options)))
        other = torch.nn.Linear(2, 1)
        print(set_model_state_dict(other, get_model_state_dict(net)), torch.equal(other.weight, net.weight))
        """
    )
    assert lines == ["['weight']", "<All keys matched successfully> True"]


STORAGES = """
    import io, os, tempfile, torch

    x = torch.arange(6.0)
    words = torch.ones(2, dtype=torch.int16).untyped_storage()
    saved = {"x": x, "s": x.storage(), "u": words, "i": torch.IntStorage([3])}
    for new in (True, False):
        for weights_only in (True, False):
            file = io.BytesIO()
            torch.save(saved, file, _use_new_zipfile_serialization=new)
            file.seek(0)
            found = torch.load(file, weights_only=weights_only)
            found["x"][0] = 9
            kinds = isinstance(found["s"], torch.storage.TypedStorage), isinstance(found["u"], torch.UntypedStorage)
            print(kinds, found["s"].tolist(), found["u"].tolist(), found["i"].tolist(), found["i"].dtype)
    with tempfile.NamedTemporaryFile() as file:
        torch.save(x, file)
        print(torch.equal(torch.load(file.name), x))
"""


def test_storages_are_saved_as_the_memory_of_their_tensors(program):
    assert program.run(STORAGES) == [
        *["(True, True) [9.0, 1.0, 2.0, 3.0, 4.0, 5.0] [1, 0, 1, 0] [3] torch.int32"] * 4,
        "True",
    ]


@needs_torch
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_pass_between_the_libraries(program, tmp_path):
    import torch

    program.run(f"""
        import torch
        x = torch.arange(3.0)
        torch.save([x, x.storage()], {str(tmp_path / "ours")!r})
    """)
    x, storage = torch.load(tmp_path / "ours")
    x[0] = 7
    assert isinstance(storage, torch.storage.TypedStorage) and storage.tolist() == [7.0, 1.0, 2.0]
    torch.save([x, x.storage()], tmp_path / "theirs")
    assert program.run(f"""
        import torch
        x, storage = torch.load({str(tmp_path / "theirs")!r})
        x[1] = 8
        print(storage.tolist())
    """) == ["[7.0, 8.0, 2.0]"]


PYTHON_2 = r"""
    import io, pickle, struct, torch

    def old(text):
        words = [pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001)]
        words.append(pickle.dumps({"protocol_version": 1001, "little_endian": True}, 2))
        identity = b"(U\x07storagectorch\nFloatStorage\nU\x01kU\x03cpuK\x01NtQ"
        tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + identity + b"K\x00K\x01\x85K\x01\x85\x89NtR"
        words.append(b"\x80\x02](U" + bytes([len(text)]) + text + tensor + b"e.")
        words.append(b"\x80\x02]U\x01ka.")
        return io.BytesIO(b"".join(words) + struct.pack("<qf", 1, 2.5))

    for options in ({}, {"weights_only": False}, {"weights_only": False, "encoding": "bytes"}):
        print(ascii([each if isinstance(each, (str, bytes)) else each.tolist() for each in torch.load(
            old("\u017c".encode()), **options)]))
"""


def test_strings_of_python_2(program):
    assert program.run(PYTHON_2) == [r"['\u017c', [2.5]]"] * 2 + [r"[b'\xc5\xbc', [2.5]]"]


ATTRIBUTES = """
import io, torch
made = [torch.ones(2), torch.nn.Parameter(torch.ones(2)), torch.nn.Buffer(torch.ones(2))]
for value in made:
    value.note, value.scale = "kept", 0.5
for weights_only in (True, False):
    file = io.BytesIO()
    torch.save(made, file)
    file.seek(0)
    again = torch.load(file, weights_only=weights_only)
    print([(type(x) is type(y), x.note, x.scale) for x, y in zip(again, made)])
"""


def test_attributes_of_tensors_come_back(program):
    assert program.run(ATTRIBUTES) == [str([(True, "kept", 0.5)] * 3)] * 2
