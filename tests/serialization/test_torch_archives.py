"""The torch format without torch: our own files come back, and damaged and hostile ones raise SerializationError."""

import collections
import io
import json
import pickle
import random
import resource
import struct
import zipfile

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.serialization import SerializationError
from tesserack.serialization import _objects as objects
from tesserack.serialization._safe import safe_globals


def archive_of(value):
    buffer = io.BytesIO()
    ts.save(value, buffer, format="torch")
    return buffer.getvalue()


def load(content):
    return ts.load(io.BytesIO(content))


def zipped(records, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_what_is_written_comes_back(tmp_path):
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    value = {
        "model": net.state_dict(),
        "list": [1, 2.5, "x", b"y", None, {1, 2}],
        "p": net[0].weight,
        7: ts.ones(3).t(),
    }
    ts.save(value, tmp_path / "x.pt", format="torch")
    again = ts.load(tmp_path / "x.pt")
    assert again["list"] == value["list"] and again["model"]._metadata == value["model"]._metadata
    assert type(again["p"]) is nn.Parameter and again["p"].data_ptr() == again["model"]["0.weight"].data_ptr()
    with pytest.raises(ValueError, match="format"):
        ts.save(1, tmp_path / "y", format="tar")
    loop = []
    loop.append(loop)
    for bad, error in ((object(), TypeError), (loop, ValueError), (ts.empty(2, device="meta"), TypeError)):
        with pytest.raises(error):
            ts.save(bad, tmp_path / "y", format="torch")
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]


class Bomb:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def nested(depth):
    return b"\x80\x02}(" + b")" + b"\x85" * depth + b"K\x01u."


def doubling(depth):
    return b"\x80\x02}(" + b")" + b"2\x86" * depth + b"K\x01u."


STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x02tQ"


def tensor_pickle(tail):
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + tail + b"\x89ccollections\nOrderedDict\n)RtR."


HOSTILE = {
    "call": pickle.dumps(Bomb(exec, ("raise SystemExit",)), 2),
    "system": b"cos\nsystem\n(S'exit 3'\ntR.",
    "getattr": b"\x80\x02cbuiltins\ngetattr\n(ctorch\nSize\nX\x05\0\0\0call_tR.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "dotted": b"\x80\x04\x8c\x05torch\x8c\x12os.system.__call__\x93.",
    "instance": b"(S'true'\nios\nsystem\n.",
    "extension": b"\x80\x02\x82\x01.",
    "not called": b"\x80\x02K\x01)R.",
    "attributes": b"\x80\x02]}X\x01\0\0\0aK\x01sb.",
    "deep key": nested(50_000),
    "doubling key": doubling(60),
    "huge memo": b"\x80\x02K\x01r\xff\xff\xff\x7fj\xff\xff\xff\x7e.",
    "long string": b"\x80\x02X\xff\xff\xff\xffabc.",
    "long bytes": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
    "bytes again and again": b"\x80\x02X\x00\x00\x10\x00"
    + b"a" * 2**20
    + b"q\x000]("
    + b"c_codecs\nencode\nh\x00X\x06\0\0\0latin1\x86R" * 20000
    + b"e.",
    "no end": b"\x80\x02]",
    "empty": b"",
    "underflow": b"\x80\x02s.",
    "mark": b"\x80\x02(.",
    "odd dict": b"\x80\x02}(K\x01u.",
    "protocol": b"\x80\x09N.",
    "beyond": tensor_pickle(b"K\x00K\x03\x85K\x01\x85"),
    "offset": tensor_pickle(b"K\x01K\x02\x85K\x01\x85"),
    "negative": tensor_pickle(b"J\xff\xff\xff\xffK\x02\x85K\x01\x85"),
    "negative stride": tensor_pickle(b"K\x01K\x02\x85J\xff\xff\xff\xff\x85"),
    "ranks": tensor_pickle(b"K\x00K\x02\x85K\x01K\x01\x86"),
    "enormous": tensor_pickle(b"K\x00" + b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x1f" + b"\x85K\x00\x85"),
    "no storage": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x00))\x89NtR.",
    "class alone": b"\x80\x02ctorch.nn.parameter\nParameter\n)\x81.",
    "missing storage": tensor_pickle(b"K\x00K\x02\x85K\x01\x85").replace(b"\0\0\x000X", b"\0\0\x001X"),
    "declared size": tensor_pickle(b"K\x00K\x02\x85K\x01\x85").replace(b"cpuK\x02", b"cpuJ\xff\xff\xff\x7f"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(name):
    content = zipped({"a/data.pkl": HOSTILE[name], "a/data/0": b"\0" * 8, "a/version": b"3\n"})
    with pytest.raises(SerializationError):
        load(content)
    magic = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
    system = pickle.dumps({"protocol_version": 1001, "little_endian": True}, 2)
    start = magic + pickle.dumps(1001, 2) + system + HOSTILE[name]
    with pytest.raises(SerializationError):
        load(start + pickle.dumps(["0"], 2) + struct.pack("<Q", 2) + b"\0" * 8)


def test_a_good_one_among_the_hostile():
    good = tensor_pickle(b"K\x00K\x02\x85K\x01\x85")
    data = struct.pack("<ff", 1.5, 2.5)
    assert load(zipped({"a/data.pkl": good, "a/data/0": data})).tolist() == [1.5, 2.5]
    turned = struct.pack(">ff", 1.5, 2.5)
    assert load(zipped({"a/data.pkl": good, "a/data/0": turned, "a/byteorder": b"big"})).tolist() == [1.5, 2.5]


def archives():
    good = tensor_pickle(b"K\x00K\x02\x85K\x01\x85")
    yield "bomb", zipped({"a/data.pkl": b"\x80\x02N.", "a/data/0": b"\0" * 10_000_000}, zipfile.ZIP_DEFLATED)
    yield "no data.pkl", zipped({"a/other": b""})
    yield "path", zipped({"../../data.pkl": good, "/etc/data/0": b"\0" * 8})
    yield "short record", zipped({"a/data.pkl": good, "a/data/0": b"\0" * 7})
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for _ in range(2):
            archive.writestr("a/data.pkl", good)
    yield "twice", twice.getvalue()
    yield "head alone", b"PK\x03\x04"


def test_hostile_archives_are_refused(tmp_path):
    for _, content in archives():
        with pytest.raises(SerializationError):
            load(content)
    assert list(tmp_path.iterdir()) == []


def seeds():
    shared = ts.arange(6.0)
    return archive_of(
        {
            "a": shared,
            "b": shared[2:],
            "p": nn.Parameter(ts.ones(2)),
            "h": ts.ones(3, dtype=ts.bfloat16),
            "u": ts.ones(2, dtype=ts.uint16),
            "m": nn.Linear(2, 2).state_dict(),
            "n": [1, 2**70, b"x", 1j, {3}, (1, "y")],
            "o": collections.OrderedDict(z=None),
            "d": [ts.float32, ts.Size([3]), ts.device("cpu")],
        }
    )


def damaged(content, seed):
    """One damaged copy: bits, bytes, cuts, pieces moved, in the pickle alone or anywhere."""
    rng = random.Random(seed)
    kind = seed % 5
    if kind == 0:
        return content[: rng.randrange(len(content))]
    made = bytearray(content)
    start = content.index(b"\x80\x02")
    end = content.index(b"PK\x03\x04", start)
    low, high = (start, end) if kind < 3 else (0, len(made))
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(low, high)
        if kind in (1, 3):
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            made[at] = rng.randrange(256)
        else:
            size = rng.randrange(1, 40)
            made[at : at + size] = made[(other := rng.randrange(low, high)) : other + size]
    if kind < 3:  # as an attacker would, with a checksum that fits
        return zipped(
            {"archive/data.pkl": bytes(made[start:end]), **{f"archive/data/{k}": b"\0" * 24 for k in range(8)}}
        )
    return bytes(made)


def test_a_thousand_damaged_archives():
    content = seeds()
    assert load(content)["n"] == [1, 2**70, b"x", 1j, {3}, (1, "y")]
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(
        resource.RLIMIT_AS, (used + (1 << 29), before[1])
    )  # an enormous allocation would fail, and be seen
    try:
        read = 0
        for seed in range(1000):
            try:
                load(damaged(content, seed))
                read += 1
            except SerializationError as error:
                assert "MemoryError" not in str(error), (seed, error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert read < 500


# --- shards ----------------------------------------------------------------------------------------------------------


def test_shards_are_read_by_their_index(tmp_path):
    ts.save({"a": ts.ones(2), "b": ts.zeros(1)}, tmp_path / "m-1.safetensors")
    ts.save({"c": ts.arange(3)}, tmp_path / "m-2.safetensors")
    index = tmp_path / "m.safetensors.index.json"

    def write(where):
        index.write_text(json.dumps({"metadata": {"total_size": 36}, "weight_map": where}))

    write({"c": "m-2.safetensors", "a": "m-1.safetensors"})
    again = ts.load(index)
    assert list(again) == ["c", "a"] and again["c"].tolist() == [0, 1, 2] and again["a"].tolist() == [1, 1]
    for where in (
        {"a": "../m-1.safetensors"},
        {"a": "/etc/passwd"},
        {"a": 1},
        {"x": "m-1.safetensors"},
        [],
        {"a": ".."},
    ):
        write(where)
        with pytest.raises(SerializationError):
            ts.load(index)
    write({"a": "gone.safetensors"})
    with pytest.raises(FileNotFoundError, match="gone"):
        ts.load(index)
    index.write_text("{")
    with pytest.raises(SerializationError, match="index"):
        ts.load(index)


def test_an_order_of_bytes_that_archives_do_not_say():
    from tesserack.serialization import _byte_order as order

    file = io.BytesIO()
    objects.save(ts.tensor([1, 256], dtype=ts.int16), file)
    without = io.BytesIO()
    with zipfile.ZipFile(file) as read, zipfile.ZipFile(without, "w") as write:
        for entry in read.infolist():
            if not entry.filename.endswith("byteorder"):
                write.writestr(entry.filename, read.read(entry))
    try:
        for asked, numbers in ((None, [1, 256]), (order.LoadEndianness.LITTLE, [1, 256]),
                               (order.LoadEndianness.BIG, [256, 1])):  # fmt: skip
            order.set_default_load_endianness(asked)
            assert order.get_default_load_endianness() is asked
            for stream, wanted in ((file, [1, 256]), (without, numbers)):
                stream.seek(0)
                assert objects.load(stream).tolist() == wanted
    finally:
        order.set_default_load_endianness(None)
    with pytest.raises(TypeError, match="LoadEndianness"):
        order.set_default_load_endianness("big")


class Undeclared:
    pass


def test_names_that_a_file_would_be_refused_for(tmp_path):
    path = tmp_path / "file.pt"
    objects.save({"a": ts.ones(1), "b": Undeclared(), "c": nn.Parameter(ts.ones(1))}, path)
    name = f"{Undeclared.__module__}.Undeclared"
    assert objects.get_unsafe_globals_in_checkpoint(path) == [name]
    with safe_globals([Undeclared]):
        assert objects.get_unsafe_globals_in_checkpoint(path) == []


def test_names_of_what_is_no_file_are_not_looked_for():
    content = io.BytesIO()
    objects.save({"a": ts.ones(100)}, content)
    names = objects.get_unsafe_globals_in_checkpoint
    for damaged in (content.getvalue()[:200], content.getvalue().replace(b"ctorch", b"ct\xffrch")):
        with pytest.raises(pickle.UnpicklingError, match="the file cannot be read"):
            names(io.BytesIO(damaged))
    with pytest.raises(ValueError, match="zip form"):
        names(io.BytesIO(b"hello"))
    with pytest.raises(TypeError, match="a path or a file, got int"):
        names(3)
