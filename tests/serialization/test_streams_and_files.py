"""Where files are written to and read from: streams that take little at once, several in one, modes, what is left."""

from __future__ import annotations

import gzip
import io
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading

import pytest
import tesserack as ts
from tesserack.serialization import SerializationError, _files, _objects, _zip

FORMS = {
    "safetensors": (ts.save, ts.load, {}),
    "torch": (ts.save, ts.load, {"format": "torch"}),
    "old": (ts.save, ts.load, {"format": "torch", "_use_new_zipfile_serialization": False}),
    "objects": (_objects.save, _objects.load, {}),
    "old objects": (_objects.save, _objects.load, {"_use_new_zipfile_serialization": False}),
}


@pytest.fixture(params=FORMS)
def form(request):
    """A way to save, and the one to load."""
    save, load, options = FORMS[request.param]
    return lambda value, f: save(value, f, **options), load


VALUE = {"a": ts.arange(1000.0), "b": [ts.ones(3, dtype=ts.bool), 1]}


def same(found):
    assert found["a"].tolist() == VALUE["a"].tolist() and found["b"][0].tolist() == [True] * 3 and found["b"][1] == 1


def test_several_in_one_file_come_back_in_turn(form, tmp_path):
    save, load = form
    path = tmp_path / "several"
    with open(path, "wb") as file:
        file.write(b"before")
        for number in range(3):
            save([ts.full((3,), number), "PK\x05\x06", number], file)
            file.write(b"between")
    with open(path, "rb") as file:
        assert file.read(6) == b"before"
        for number in range(3):
            tensor, _, found = load(file)
            assert found == number and tensor.tolist() == [number] * 3 and file.read(7) == b"between"


def test_files_open_for_appending(form, tmp_path):
    save, load = form
    path = tmp_path / "appended"
    path.write_bytes(b"before")
    for _ in range(2):
        with open(path, "ab") as file:
            save(VALUE, file)
    with open(path, "rb") as file:
        file.seek(6)
        same(load(file))
        same(load(file))
        assert not file.read()


class Narrow(io.RawIOBase):
    """Takes and gives at most 1000 bytes at once, and seeks only where it is allowed to."""

    def __init__(self, content=b"", seeks=True):
        self.whole, self._seeks = io.BytesIO(content), seeks

    def writable(self):
        return True

    def readable(self):
        return True

    def seekable(self):
        return self._seeks

    def write(self, data):
        return self.whole.write(bytes(data[:1000]))

    def readinto(self, view):
        return self.whole.readinto(memoryview(view)[:1000])

    def seek(self, *where):
        if not self._seeks:
            raise io.UnsupportedOperation("seek")
        return self.whole.seek(*where)

    def tell(self):
        if not self._seeks:
            raise io.UnsupportedOperation("tell")
        return self.whole.tell()


def test_streams_that_take_and_give_little_at_once(form):
    save, load = form
    file = Narrow(seeks=False)
    save(VALUE, file)
    same(load(Narrow(file.whole.getvalue())))
    same(load(io.BytesIO(file.whole.getvalue())))


def test_files_that_only_write_or_read(form):
    """Without ``readinto``, ``flush`` and a base class; what they write they take as bytes."""
    save, load = form
    whole = io.BytesIO()

    class Writes:
        def write(self, data):
            assert type(data) is bytes
            whole.write(data)

    class Reads:
        read, seek, tell = whole.read, whole.seek, whole.tell

    save(VALUE, Writes())
    whole.seek(0)
    same(load(Reads()))
    with pytest.raises(AttributeError, match="write"):
        save(VALUE, object())
    with pytest.raises(AttributeError):
        load(object())


def test_a_stream_that_takes_nothing_is_an_error(form):
    class Full(io.RawIOBase):
        def __init__(self, answer):
            self.answer = answer

        def write(self, data):
            return self.answer

    for answer in (0, None):
        with pytest.raises(OSError):
            form[0](VALUE, Full(answer))


def test_compressed_files_pipes_and_sockets(form, tmp_path):
    save, load = form
    with gzip.open(tmp_path / "x.gz", "wb") as file:
        save(VALUE, file)
    with gzip.open(tmp_path / "x.gz", "rb") as file:
        same(load(file))
    for ends in (os.pipe(), [s.detach() for s in socket.socketpair()]):
        received = []

        def take(end=ends[0], received=received):
            with open(end, "rb", buffering=0) as file:
                while part := file.read(1 << 16):
                    received.append(part)

        reader = threading.Thread(target=take)
        reader.start()
        with open(ends[1], "wb", buffering=0) as file:
            save(VALUE, file)
        reader.join(60)
        same(load(io.BytesIO(b"".join(received))))


def test_saving_takes_no_copy_of_the_whole(form):
    """Peak memory of a process that writes 200 MB to nowhere, in a limit that leaves no room for it twice."""
    program = f"""
        import resource, tesserack as ts
        from tests.serialization.test_streams_and_files import FORMS
        save, load, options = FORMS[{form_name(form)!r}]
        value = ts.ones(50_000_000)
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + 150_000_000,) * 2)
        with open("/dev/null", "wb") as file:
            save(value, file, **options)
        print("saved")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "saved\n", done.stderr


def form_name(form):
    options = form[0].__closure__
    held = [cell.cell_contents for cell in options]
    return next(name for name, (save, _, given) in FORMS.items() if save in held and given in held)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_modes_are_those_of_the_umask_or_of_what_was_there(form, tmp_path):
    save, _ = form
    path, before = tmp_path / "x", os.umask(0o027)
    try:
        save(VALUE, path)
        assert mode_of(path) == 0o640
        path.chmod(0o604)
        save(VALUE, path)
        assert mode_of(path) == 0o604
    finally:
        os.umask(before)


def test_what_is_killed_while_it_writes_leaves_the_old_file_alone(form, tmp_path):
    program = f"""
        import os, signal, tesserack as ts
        from tests.serialization.test_streams_and_files import FORMS
        from tesserack.serialization import _files
        save, load, options = FORMS[{form_name(form)!r}]
        save([1], "x", **options)
        write, calls = _files.Sink.write, []
        def dies(self, data):
            calls.append(1)
            if len(calls) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return write(self, data)
        _files.Sink.write = dies
        save([ts.ones(3)], "x", **options)
    """
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, env=environment, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert form[1](tmp_path / "x") == [1]
    assert [p.name for p in tmp_path.iterdir()] == ["x"] or not hasattr(os, "O_TMPFILE")


def test_a_file_in_a_folder_that_may_not_be_changed_is_written_to(form, tmp_path, monkeypatch):
    save, load = form
    path = tmp_path / "x"
    save({"a": ts.ones(100_000), "b": [ts.ones(3, dtype=ts.bool), 1]}, path)
    refused = os.open

    def refuse(name, flags, *rest, **others):
        if os.path.dirname(os.fspath(name)) == str(tmp_path) or os.fspath(name) == str(tmp_path):
            raise PermissionError("no")
        return refused(name, flags, *rest, **others)

    monkeypatch.setattr(_files.os, "open", refuse)
    inode = path.stat().st_ino
    save(VALUE, path)
    same(load(path))
    assert path.stat().st_ino == inode
    with pytest.raises(PermissionError):
        save(VALUE, tmp_path / "new")


def test_files_that_tensors_lie_in_may_be_replaced_but_not_written_to(tmp_path, monkeypatch):
    path = tmp_path / "x"
    ts.save({"a": ts.arange(100_000)}, path)
    mapped = ts.load(path, mmap=True)["a"]
    ts.save({"a": ts.zeros(3)}, path)
    assert mapped.sum().item() == sum(range(100_000))
    mapped = ts.load(path, mmap=True)["a"]

    class Refused:
        def __init__(self, folder):
            raise PermissionError("no")

    monkeypatch.setattr(_files, "_New", Refused)
    with pytest.raises(OSError, match="mmap"):
        ts.save([1], path)
    assert mapped.tolist() == [0, 0, 0]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is full")
def test_no_room_is_an_error(form):
    with pytest.raises(OSError, match="space"):
        form[0](VALUE, "/dev/full")


def test_wide_archives_are_written_and_found(monkeypatch):
    """The fields of 64 bits, with numbers that would fit into others."""
    monkeypatch.setattr(_zip, "_FULL", 3000)
    file = io.BytesIO()
    file.write(b"before")
    sink = _files.Sink(file)
    archive = _zip.ArchiveWriter(sink)
    for name, content in (("a", b"x" * 5000), ("b", b"y" * 10), ("c", b"")):
        archive.add(name, content)
    archive.close()
    end = file.tell()
    file.write(b"PK\x05\x06" * 100)
    assert _zip.archive_end(file, 6) == end and _zip.archive_end(file, 5) is None
    assert b"PK\x06\x06" in file.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>", "page"),
        (b"  <html>", "page"),
        (b'{"error": "not found"}', "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"\x1f\x8b\x08\0", "gzip"),
        (b"PK\x03\x04" + b"\0" * 40, "truncated"),
    ],
)
def test_files_that_are_something_else_say_so_and_not_to_trust_them(content, said):
    for load in (ts.load, _objects.load):
        with pytest.raises(SerializationError, match=said) as caught:
            load(io.BytesIO(content))
        assert "weights_only=False" not in str(caught.value)
    if not content:
        with pytest.raises(EOFError):
            _objects.load(io.BytesIO(content))
