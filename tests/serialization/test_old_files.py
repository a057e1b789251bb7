"""Files of the oldest versions of torch.save: text of Python 2, and storages that are slices of others."""

import io
import pickle
import struct
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import tesserack as ts

MARK = pickle.dumps(0x1950A86A20F9469CFC6C, 2)


def short(text: bytes) -> bytes:
    """A string of Python 2."""
    return b"U" + bytes([len(text)]) + text


def storage(key: bytes, count: int, place: bytes = b"N") -> bytes:
    """A storage of float32 by its persistent id."""
    kind = b"ctorch\nFloatStorage\n"
    return b"(" + short(b"storage") + kind + short(key) + short(b"cpu") + b"K" + bytes([count]) + place + b"tQ"


def old_file(structure: bytes, *numbers: float) -> bytes:
    """A file of one storage, whose key is 7."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    parts = (MARK, pickle.dumps(1001, 2), pickle.dumps(system, 2), b"\x80\x02" + structure + b".")
    content = struct.pack(f"<q{len(numbers)}f", len(numbers), *numbers)
    return b"".join((*parts, pickle.dumps(["7"] if numbers else [], 2), content if numbers else b""))


def read(data: bytes, **options: Any) -> Any:
    return ts.load(io.BytesIO(data), **options)


def test_text_of_python_2_is_in_the_encoding_that_is_asked_for():
    word = "gr\u00fc\u00df"
    utf8, latin = (old_file(short(word.encode(form))) for form in ("utf-8", "latin-1"))
    assert read(utf8) == read(utf8, encoding="utf-8") == read(latin, encoding="latin-1") == read(latin) == word
    assert read(utf8, encoding="bytes") == word.encode()
    for data in (utf8, latin):
        with pytest.raises(UnicodeDecodeError):
            read(data, encoding="ascii")


def test_storages_are_found_where_strings_stay_bytes():
    build = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage(b"7", 3)
    data = old_file(b"](" + short(b"\xff") + build + b"K\x01K\x02\x85K\x01\x85\x89NtRe", 1.0, 2.0, 3.0)
    name, tensor = read(data, encoding="bytes")
    assert name == b"\xff" and tensor.tolist() == [2.0, 3.0]


def test_slices_of_a_storage_share_its_memory():
    places = (b"(" + short(name) + b"K" + bytes([begin]) + b"K" + bytes([count]) + b"t"
              for name, begin, count in ((b"8", 0, 1), (b"9", 1, 2)))  # fmt: skip
    first, rest = read(old_file(b"".join(storage(b"7", 3, place) for place in places) + b"\x86", 1.0, 2.0, 3.0))
    assert first.tolist() == [1.0] and rest.tolist() == [2.0, 3.0] and len(rest) == 2
    assert first.data_ptr() + 4 == rest.data_ptr()
    rest[0] = 5.0
    assert rest.tolist() == [5.0, 3.0] and first.tolist() == [1.0]


@pytest.mark.parametrize("place", [b"(U\x018K\x02K\x02t", b"(U\x018K\x00t", b"(U\x018K\x00\x8a\x01\xfft", b"K\x01"])
def test_slices_that_are_none_are_refused(place):
    with pytest.raises(RuntimeError, match="a storage in it"):
        read(old_file(storage(b"7", 3, place), 1.0, 2.0, 3.0))


class Filling(io.BytesIO):
    """A file that fills memory it is given."""

    filled = 0

    def readinto(self, buffer: Any) -> int:
        self.filled += len(buffer)
        return super().readinto(buffer)


def test_files_that_can_fill_memory_are_asked_to():
    file = Filling(old_file(b"N"))
    assert read(file.getvalue()) is ts.load(file) is None
    assert file.filled


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("weights_only", [False, True])
def test_one_copy_is_held_of_what_a_file_holds(tmp_path, opened, weights_only):
    size, path = 100_000_000, tmp_path / "file"
    tensors = {"first": ts.arange(size // 8), "second": ts.ones(3)}
    ts.save(tensors, path, format="torch", _use_new_zipfile_serialization=False)
    program = """
        import resource, sys, tesserack as ts
        from tesserack.serialization import _objects
        path, opened, weights_only = sys.argv[1], *map(int, sys.argv[2:])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        given = open(path, "rb") if opened else path
        found = ts.load(given) if weights_only else _objects.load(given, weights_only=False)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        print(found["first"][-1].item(), found["second"].tolist(), not opened or given.read() == b"")
    """
    words = [sys.executable, "-c", textwrap.dedent(program), str(path), str(int(opened)), str(int(weights_only))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    taken, values = done.stdout.splitlines()
    assert int(taken) * 1024 < size * 1.6  # kB
    assert values == f"{size // 8 - 1} [1.0, 1.0, 1.0] True"


def test_pickles_longer_than_what_is_read_at_first():
    names = {f"{number:0100}": number for number in range(30_000)}
    file = io.BytesIO()
    ts.save({"names": names, "x": ts.arange(5)}, file, format="torch", _use_new_zipfile_serialization=False)
    file.seek(0)
    found = ts.load(file)
    assert found["names"] == names and found["x"].tolist() == [0, 1, 2, 3, 4] and not file.read()
