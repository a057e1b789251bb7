"""Pictures through files, and torchvision itself where it is installed."""

import io
import struct
import subprocess
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path

import pytest
import tesserack as ts
from PIL import Image

pytest.importorskip("tesserack_vision", reason="the package tesserack-vision is not installed")
from tesserack_vision import codecs

IMAGE = (ts.arange(3 * 16 * 20) % 251).reshape(3, 16, 20).to(ts.uint8)


def test_png_keeps_every_bit_and_jpeg_nearly() -> None:
    decode, decode_jpegs = codecs.OPERATORS, codecs.decode_jpegs_cuda
    png, jpeg = codecs.encode_png(IMAGE), codecs.encode_jpeg(ts.full((3, 8, 8), 90, dtype=ts.uint8), 95)
    assert codecs.decode_image(png).tolist() == IMAGE.tolist()
    assert codecs.decode_image(png, 1).shape[0] == 1 and codecs.decode_image(png, 4).shape[0] == 4
    assert (codecs.decode_image(jpeg).int() - 90).abs().max().item() <= 2
    assert len(decode) == 13
    pictures = decode_jpegs([jpeg, codecs.encode_jpegs_cuda([IMAGE], 90)[0]], 1, ts.device("cpu"))
    assert [p.shape for p in pictures] == [(1, 8, 8), (1, 16, 20)]


def test_files_of_another_kind_or_damaged_are_told_in_words(tmp_path: Path) -> None:
    png = codecs.encode_png(IMAGE)
    decode_jpeg = next(f for schema, f in codecs.OPERATORS.items() if schema.startswith("decode_jpeg"))
    with pytest.raises(RuntimeError, match="Not a JPEG file: got PNG"):
        decode_jpeg(png)
    with pytest.raises(RuntimeError, match="expected an image file"):
        codecs.decode_image(ts.zeros(40, dtype=ts.uint8))
    with pytest.raises(RuntimeError, match=r"damaged|truncated"):
        next(f for schema, f in codecs.OPERATORS.items() if schema.startswith("decode_png"))(png[:-60])
    with pytest.raises(RuntimeError, match="No such file"):
        codecs.read_file(str(tmp_path / "none"))


def _png(width: int, colours: int, depth: int, rows: list[bytes], *chunks: tuple[bytes, bytes]) -> ts.Tensor:
    """The file's bytes, of rows that begin with their filter."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, len(rows), depth, colours, 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b"")]
    file = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
    return ts.frombuffer(bytearray(file), dtype=ts.uint8)


@pytest.mark.parametrize(("kind", "channels"), [(0, 1), (4, 2), (2, 3), (6, 4)])
def test_sixteen_bits_a_channel_are_kept(kind: int, channels: int) -> None:
    values = [
        [(5000 * (y + 1) * (x + 1) + 77 * c) % 65536 for x in range(3) for c in range(channels)] for y in range(2)
    ]
    rows = [b"\0" + struct.pack(f">{3 * channels}H", *row) for row in values]
    picture = codecs.decode_image(_png(3, kind, 16, rows))
    assert picture.dtype is ts.uint16 and picture.shape == (channels, 2, 3)
    assert picture.permute(1, 2, 0).reshape(2, -1).tolist() == values
    full = codecs.decode_image(_png(3, kind, 16, rows), 4)
    assert full.shape == (4, 2, 3) and full[0].tolist() == picture[0].tolist()
    assert full[3].tolist() == (picture[-1].tolist() if channels in (2, 4) else [[65535] * 3] * 2)


def test_grey_of_colours_is_libpngs() -> None:
    rows = [b"\0" + bytes([200, 30, 10, 7, 7, 7])]
    plain, linear = _png(2, 2, 8, rows), _png(2, 2, 8, rows, (b"gAMA", struct.pack(">I", 45455)))
    assert codecs.decode_image(plain, 1).tolist() == [[[78, 7]]]  # (0.2989 * 200 + 0.587 * 30 + 0.114 * 10), cut off
    light = 0.2989 * (200 / 255) ** 2.2 + 0.587 * (30 / 255) ** 2.2 + 0.1141 * (10 / 255) ** 2.2
    grey = codecs.decode_image(linear, 2)
    assert abs(grey[0, 0, 0].item() - 255 * light ** (1 / 2.2)) <= 1 and grey[:, 0, 1].tolist() == [7, 255]


def test_indices_of_a_palette_stay_unless_colours_are_asked_for() -> None:
    palette, rows = bytes([9, 8, 7, 60, 50, 40]), [b"\0" + bytes([1, 0])]
    file = _png(2, 3, 8, rows, (b"PLTE", palette), (b"tRNS", bytes([5])))
    assert codecs.decode_image(file).tolist() == [[[1, 0]]]
    assert codecs.decode_image(file, 3)[:, 0].T.tolist() == [[60, 50, 40], [9, 8, 7]]
    assert codecs.decode_image(file, 4)[3].tolist() == [[255, 5]]


def test_jpeg_gives_its_luminance_and_inks_and_has_no_alpha() -> None:
    file = io.BytesIO()
    Image.new("CMYK", (8, 8), (10, 20, 30, 40)).save(file, "JPEG", quality=100)
    inks = codecs.decode_image(ts.frombuffer(bytearray(file.getvalue()), dtype=ts.uint8))
    assert inks.shape == (4, 8, 8) and (inks[:, 0, 0].int() - ts.tensor([245, 235, 225, 215])).abs().max().item() <= 2
    file = io.BytesIO()
    Image.merge("YCbCr", [Image.new("L", (8, 8), v) for v in (100, 40, 220)]).save(file, "JPEG", quality=100)
    jpeg = ts.frombuffer(bytearray(file.getvalue()), dtype=ts.uint8)
    assert (codecs.decode_image(jpeg, 1).int() - 100).abs().max().item() <= 1
    for mode in (2, 4):
        with pytest.raises(RuntimeError, match="not supported for JPEG"):
            codecs.decode_image(jpeg, mode)


@pytest.mark.parametrize("mode", [1, 2])
def test_webp_keeps_its_colours_where_grey_is_asked_for(mode: int) -> None:
    """libwebp has no grey, and torchvision gives the picture as it is."""
    file = io.BytesIO()
    Image.new("RGB", (8, 6), (10, 20, 30)).save(file, "WEBP", lossless=True)
    found = codecs.decode_image(ts.frombuffer(bytearray(file.getvalue()), dtype=ts.uint8), mode)
    assert found.shape == (3, 6, 8) and found[:, 0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("planes", "message"),
    [
        (ts.zeros(3, 4, 4), "dtype should be uint8"),
        (ts.zeros(4, 4, dtype=ts.uint8), "should be a 3-dimensional"),
        (ts.zeros(5, 4, 4, dtype=ts.uint8), "should be 1 or 3, got: 5"),
        (ts.zeros(3, 0, 0, dtype=ts.uint8), "with pixels"),
    ],
)
def test_what_no_file_can_hold_is_refused(planes: ts.Tensor, message: str) -> None:
    for encode in (codecs.encode_png, codecs.encode_jpeg):
        with pytest.raises(RuntimeError, match=message):
            encode(planes)
    with pytest.raises(RuntimeError, match=r"Expected a torch.uint8|Expected a non empty 1-dim"):
        codecs.decode_image(planes)


PROGRAM = """
import torch, torchvision
from torchvision import io, ops
image = (torch.arange(3 * 32 * 40) % 251).reshape(3, 32, 40).to(torch.uint8)
assert torch.equal(io.decode_png(io.encode_png(image)), image)
model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
    weights=None, weights_backbone=None, num_classes=3)
losses = model([torch.rand(3, 90, 120)], [{"boxes": torch.tensor([[10.0, 10, 80, 70]]), "labels": torch.tensor([1])}])
sum(losses.values()).backward()
assert model.backbone.body["0"][0].weight.grad.abs().sum() > 0
assert set(model.eval()([torch.rand(3, 90, 120)])[0]) == {"boxes", "labels", "scores"}
rois = torch.tensor([[0.0, 1, 1, 8, 8], [1, 2, 3, 9, 7]])
offset, weight = torch.randn(2, 18, 10, 12), torch.randn(4, 8, 3, 3)
for pool in (
    lambda x: ops.roi_align(x, rois, (2, 2)),
    lambda x: ops.roi_pool(x, rois, (2, 2)),
    lambda x: ops.ps_roi_align(x, rois, (2, 2)),
    lambda x: ops.ps_roi_pool(x, rois, (2, 2)),
    lambda x: ops.deform_conv2d(x, offset, weight),
):
    maps = torch.randn(2, 8, 12, 14, requires_grad=True)
    pool(maps).sum().backward()
    assert maps.grad.abs().sum() > 0
turned = torch.tensor([[0.0, 0, 2, 2, 0], [0, 0, 2, 2, 45]])
assert torch.ops.torchvision.box_iou_rotated(turned, turned).diagonal().allclose(torch.ones(2))
boxes, scores = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]), torch.tensor([0.9, 0.8, 0.7])
with torch.autocast("cpu", dtype=torch.bfloat16):
    assert ops.nms(boxes, scores, 0.5).tolist() == [0, 2]
    assert ops.roi_align(maps.bfloat16(), rois, (2, 2)).dtype is torch.bfloat16
whole = [torch.quantize_per_tensor(t, scale, 0, torch.quint8) for t, scale in ((boxes, 0.1), (scores, 0.01))]
assert ops.nms(*whole, 0.5).numel() == 2
assert torch.allclose(io.decode_jpeg(io.encode_jpeg(image[:1] * 0 + 9, 95)).float(), torch.tensor(9.0), atol=2)
io.write_file("picture.bin", torch.arange(9, dtype=torch.uint8))
assert io.read_file("picture.bin").tolist() == list(range(9))
assert torch.ops.image._jpeg_version() >= 0
print("done")
"""


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_detection_models_of_torchvision_train(tmp_path: Path) -> None:
    program = tmp_path / "detect.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "tesserack", "run", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "done", done.stderr[-2000:]


@pytest.mark.parametrize("name", ["decode_gif", "decode_webp", "decode_jpeg", "decode_png", "decode_image"])
def test_bytes_that_are_no_vector_of_bytes_are_refused(name: str) -> None:
    decode = next(kernel for key, kernel in codecs.OPERATORS.items() if key.startswith(f"{name}("))
    data = ts.arange(100, dtype=ts.uint8)
    for wrong, text in ((data[None], "must be 1-dimensional"), (data.float(), "must have uint8 data type"),
                        (data[::2], "must be contiguous.*stride")):  # fmt: skip
        with pytest.raises(RuntimeError, match=text):
            decode(wrong) if name == "decode_gif" else decode(wrong, 0)


def test_a_png_of_a_few_bytes_is_too_small() -> None:
    with pytest.raises(RuntimeError, match="Content is too small for png"):
        codecs._decoder("decode_png", "PNG")(ts.arange(3, dtype=ts.uint8))
