"""Pictures through files, and torchvision itself where it is installed."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import tesserack as ts

pytest.importorskip("tesserack_vision", reason="the package tesserack-vision is not installed")
from tesserack_vision import codecs

IMAGE = (ts.arange(3 * 16 * 20) % 251).reshape(3, 16, 20).to(ts.uint8)


def test_png_keeps_every_bit_and_jpeg_nearly() -> None:
    decode = codecs.OPERATORS
    png, jpeg = codecs.encode_png(IMAGE), codecs.encode_jpeg(ts.full((3, 8, 8), 90, dtype=ts.uint8), 95)
    assert codecs.decode_image(png).tolist() == IMAGE.tolist()
    assert codecs.decode_image(png, 1).shape[0] == 1 and codecs.decode_image(png, 4).shape[0] == 4
    assert (codecs.decode_image(jpeg).int() - 90).abs().max().item() <= 2
    assert len(decode) == 9


def test_files_of_another_kind_or_damaged_are_told_in_words(tmp_path: Path) -> None:
    png = codecs.encode_png(IMAGE)
    decode_jpeg = next(f for schema, f in codecs.OPERATORS.items() if schema.startswith("decode_jpeg"))
    with pytest.raises(RuntimeError, match="expected JPEG or MPO, got PNG"):
        decode_jpeg(png)
    with pytest.raises(RuntimeError, match="expected an image file"):
        codecs.decode_image(ts.zeros(40, dtype=ts.uint8))
    with pytest.raises(RuntimeError, match="damaged"):
        next(f for schema, f in codecs.OPERATORS.items() if schema.startswith("decode_png"))(png[:-60])
    with pytest.raises(RuntimeError, match="No such file"):
        codecs.read_file(str(tmp_path / "none"))


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
print("done")
"""


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_detection_models_of_torchvision_train(tmp_path: Path) -> None:
    program = tmp_path / "detect.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-m", "tesserack", "run", program], capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stderr[-2000:]
