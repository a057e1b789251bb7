"""Files of the forms that PyTorch reads and writes: what shares memory, the older form, several in one file."""

from __future__ import annotations

import io

import pytest
import tesserack as ts
import torch
from tesserack.serialization import _objects

WAYS = [
    (ts.save, {"format": "torch"}),
    (ts.save, {"format": "torch", "_use_new_zipfile_serialization": False}),
    (_objects.save, {}),
    (_objects.save, {"_use_new_zipfile_serialization": False}),
    (_objects.save, {"pickle_protocol": 4}),
]


@pytest.mark.parametrize(("save", "options"), WAYS)
@pytest.mark.parametrize("weights_only", [True, False])
def test_pytorch_reads_what_shares_memory(save, options, weights_only):
    if weights_only and options.get("pickle_protocol"):
        pytest.skip("PyTorch's reader of weights knows the operations of protocol 2 alone")
    numbers = ts.arange(6.0)
    value = {
        "whole": numbers,
        "part": numbers[2:4],
        "bits": numbers.view(ts.int32),
        "repeated": ts.ones(1).expand(100, 100),
        "layout": ts.strided,
    }
    file = io.BytesIO()
    save(value, file, **options)
    file.seek(0)
    if weights_only:
        torch.serialization.add_safe_globals([torch.serialization._get_layout])
    found = torch.load(file, weights_only=weights_only)
    assert found["bits"].dtype is torch.int32 and found["repeated"].stride() == (0, 0)
    assert found["layout"] is torch.strided and found["repeated"].shape == (100, 100)
    found["whole"].fill_(1)
    assert found["part"].tolist() == [1, 1] and found["bits"].tolist() == [0x3F80_0000] * 6


@pytest.mark.parametrize("old", [False, True])
def test_several_in_one_file_of_either(old):
    ours, theirs = io.BytesIO(), io.BytesIO()
    for number in range(3):
        _objects.save([ts.full((2,), number), number], ours, _use_new_zipfile_serialization=not old)
        torch.save([torch.full((2,), number), number], theirs, _use_new_zipfile_serialization=not old)
    for file, loads in ((ours, [ts.load, _objects.load, *([torch.load] if old else [])]), (theirs, [ts.load])):
        for load in loads:
            file.seek(0)
            for number in range(3):
                tensor, found = load(file)
                assert found == number and tensor.tolist() == [number, number]


def test_scalars_of_numpy_in_the_other_order():
    """Their pickles say the order of the bytes beside their type."""
    import pickle
    import zipfile

    import numpy as np

    class Turned:
        def __reduce__(self):
            scalar = np._core.multiarray.scalar
            return scalar, (np.dtype(">f8"), np.array(1.5, ">f8").tobytes())

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps([Turned(), np.float32(2.5)], 2))
    file.seek(0)
    assert ts.load(file) == [1.5, 2.5]


def test_files_written_on_big_endian_machines_are_read():
    """As PyTorch writes them where it is told to pretend."""
    import zipfile

    file = io.BytesIO()
    torch.save({"x": torch.tensor([1.5, -2.0]), "c": torch.tensor([1 + 2j]), "b": torch.tensor([True])}, file)
    turned = io.BytesIO()
    sizes = {"0": 4, "1": 4, "2": 1}
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(turned, "w") as target:
        for entry in source.infolist():
            content, key = source.read(entry), entry.filename.rpartition("data/")[2]
            if key in sizes:
                size = sizes[key]
                content = b"".join(content[i : i + size][::-1] for i in range(0, len(content), size))
            target.writestr(entry.filename, b"big" if entry.filename.endswith("byteorder") else content)
    turned.seek(0)
    found = ts.load(turned)
    assert found["x"].tolist() == [1.5, -2] and found["c"].tolist() == [1 + 2j] and found["b"].tolist() == [True]
