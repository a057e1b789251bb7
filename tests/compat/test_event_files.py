"""Event files of TensorBoard: every kind of entry, read back by the format's description."""

from __future__ import annotations

import io
import struct
import wave
import zlib

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn
from tesserack.utils.tensorboard import SummaryWriter
from tesserack.utils.tensorboard._records import crc32c


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8])
        message = data[12 : 12 + length]
        assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked(message)
        yield message
        data = data[16 + length :]


def fields(message):
    """A protobuf message as (number, value) pairs: written apart from the writer, from the format's description."""
    k = 0

    def varint():
        nonlocal k
        value = shift = 0
        while True:
            byte = message[k]
            k += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while k < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            yield number, message[k : k + size]
            k += size


def summaries(folder):
    """(step, tag, fields) of every value; a graph has no tag."""
    found = []
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        messages = [dict(fields(m)) for m in records(path)]
        assert messages[0][3] == b"brain.Event:2"
        for message in messages[1:]:
            if 4 in message:
                found.append((0, "", {4: message[4]}))
            for _, value in fields(message.get(5, b"")):
                value = dict(fields(value))
                found.append((message[2], value.pop(1).decode(), value))
    return found


def test_event_files(tmp_path):
    with SummaryWriter(tmp_path / "run") as writer:
        writer.add_scalar("loss", ts.tensor(0.5), 3)
        writer.add_scalars("both", {"a": 1.0, "b": 2}, 4)
        writer.add_histogram("weights", ts.arange(10.0), 5, bins=5)
        writer.add_image("picture", ts.rand(3, 4, 5), 6)
        writer.add_text("note", "hello", 7)
        writer.add_hparams({"lr": 0.1}, {"accuracy": 0.9})
    found = {name: (step, value) for step, name, value in summaries(tmp_path)}
    assert found["loss"][0] == 3 and struct.unpack("<f", found["loss"][1][2])[0] == 0.5
    assert len([1 for _, name, _ in summaries(tmp_path) if name == "both"]) == 2
    histogram = dict(fields(found["weights"][1][5]))
    assert np.frombuffer(histogram[7]).tolist() == [0.0] + [2.0] * 5 and struct.unpack("<d", histogram[4])[0] == 45
    image = dict(fields(found["picture"][1][4]))
    assert (image[1], image[2], image[3]) == (4, 5, 3) and image[4].startswith(b"\x89PNG")
    data = image[4][image[4].index(b"IDAT") + 4 :]
    assert len(zlib.decompressobj().decompress(data)) == 4 * (1 + 5 * 3)
    assert b"hello" in found["note/text_summary"][1][8] and found["accuracy"][0] == 0
    assert crc32c(b"123456789") == 0xE3069283
    with SummaryWriter(tmp_path / "other") as writer, pytest.raises(ValueError, match="at least one"):
        writer.add_histogram("none", ts.empty(0))


def tensor_of(value):
    """The dtype's number, the shape and the numbers of a TensorProto."""
    parts = dict(fields(value[8]))
    shape = [dict(fields(size))[1] for _, size in fields(parts.pop(2))]
    kind = parts.pop(1)
    (number, data) = parts.popitem()
    return kind, shape, np.frombuffer(data, {5: "f4", 6: "f8", 9: "f4"}.get(number, "u1"))


def plugin_of(value):
    """The plugin's name, and its data."""
    data = dict(fields(dict(fields(value[9]))[1]))
    return data[1].decode(), dict(fields(data.get(2, b"")))


def written(folder, fill):
    with SummaryWriter(folder) as writer:
        fill(writer)
    return {name: value for _, name, value in summaries(folder)}


def test_histograms_take_bins_as_numpy_does(tmp_path):
    def fill(writer):
        writer.add_histogram("growing", ts.tensor([-1.0, 1.0, 1.0]))
        writer.add_histogram("few", ts.arange(12.0), bins=12, max_bins=4)
        writer.add_histogram_raw("raw", 0, 2, 3, 4, 5.0, [1, 2], [2, 1])

    found = {name: dict(fields(value[5])) for name, value in written(tmp_path, fill).items()}
    counts, limits = (np.frombuffer(found["growing"][k]) for k in (7, 6))
    assert counts.sum() == 3 and len(counts) == len(limits) and counts[-1] == 2 and limits[-1] > 1 > limits[-2]
    assert np.frombuffer(found["few"][7]).tolist() == [0, 3, 3, 3, 3]
    assert np.frombuffer(found["raw"][6]).tolist() == [1, 2] and struct.unpack("<d", found["raw"][5])[0] == 5
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match="limit"):
        writer.add_histogram_raw("raw", 0, 2, 3, 4, 5, [1], [2, 1])


def test_precision_over_recall(tmp_path):
    labels, guesses = ts.tensor([0, 1, 1, 0]), ts.tensor([0.1, 0.4, 0.9, 0.6])

    def fill(writer):
        writer.add_pr_curve("curve", labels, guesses, num_thresholds=5)
        writer.add_pr_curve_raw("raw", *(np.full(3, k) for k in range(6)))

    found = written(tmp_path, fill)
    kind, shape, data = tensor_of(found["curve"])
    tp, fp, tn, fn, precision, recall = data.reshape(6, 5)
    # At thresholds 0, 1/4, 1/2, 3/4 and 1, counted by hand.
    assert kind == 1 and shape == [6, 5]
    assert tp.tolist() == [2, 2, 1, 1, 0] and fp.tolist() == [2, 1, 1, 0, 0]
    assert (tp + fn).tolist() == [2] * 5 == (fp + tn).tolist()
    assert precision.tolist() == pytest.approx([0.5, 2 / 3, 0.5, 1, 0]) and recall.tolist() == [1, 1, 0.5, 0.5, 0]
    assert plugin_of(found["curve"]) == ("pr_curves", {1: 0, 2: 5})
    assert tensor_of(found["raw"])[2].tolist() == [k for k in range(6) for _ in range(3)]


def test_sounds_films_and_boxes(tmp_path):
    def fill(writer):
        writer.add_audio("sound", ts.tensor([[0.0, 1.0, -2.0]]), sample_rate=8000)
        writer.add_images("grid", ts.rand(9, 3, 4, 5))

    found = written(tmp_path, fill)
    sound = dict(fields(found["sound"][6]))
    with wave.open(io.BytesIO(sound[4])) as file:
        assert file.getframerate() == 8000 and np.frombuffer(file.readframes(3), "i2").tolist() == [0, 32767, -32767]
    assert sound[3] == 3 and sound[5] == b"audio/wav"
    grid = dict(fields(found["grid"][4]))
    assert (grid[1], grid[2]) == (8, 40)
    image = pytest.importorskip("PIL.Image")
    with SummaryWriter(tmp_path / "pil") as writer:
        writer.add_video("film", ts.rand(2, 3, 1, 4, 5), fps=5)
        writer.add_image_with_boxes("boxes", ts.zeros(3, 20, 20), ts.tensor([[2, 3, 10, 12]]), labels="x", rescale=2)
    found = {name: dict(fields(value[4])) for _, name, value in summaries(tmp_path / "pil")}
    film, boxes = (image.open(io.BytesIO(found[name][4])) for name in ("film", "boxes"))
    assert film.n_frames == 3 and film.size == (10, 4) and boxes.size == (40, 40)
    assert np.asarray(boxes)[..., 0].max() > 200 and np.asarray(boxes)[..., 1].max() < 100


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.complex64])
def test_tensors_and_numbers_of_double_precision(tmp_path, dtype):
    x = ts.tensor([[1.0, 2.5]], dtype=dtype)

    def fill(writer):
        writer.add_tensor("x", x)
        writer.add_tensor("half", ts.tensor([1.5], dtype=ts.bfloat16))
        writer.add_scalar("s", 0.1, new_style=True, double_precision=True)

    found = written(tmp_path, fill)
    kind, shape, data = tensor_of(found["x"])
    assert shape == [1, 2] and np.array_equal(data, x.numpy().view(data.dtype).ravel())
    assert kind == {ts.float32: 1, ts.float64: 2, ts.complex64: 8}[dtype]
    assert dict(fields(found["half"][8]))[13] == b"\xc0\x7f"  # 0x3fc0, in seven bits each
    assert tensor_of(found["s"])[2].tolist() == [0.1] and plugin_of(found["s"])[0] == "scalars"


def test_meshes_and_charts(tmp_path):
    def fill(writer):
        writer.add_mesh("m", ts.rand(1, 4, 3), faces=ts.tensor([[[0, 1, 2]]]), config_dict={"a": 1})
        writer.add_custom_scalars({"group": {"lines": ["Multiline", ["a", "b"]], "band": ["Margin", ["v", "l", "u"]]}})
        with pytest.raises(ValueError, match="three"):
            writer.add_custom_scalars_marginchart(["a"])
        with pytest.raises(ValueError, match="batch"):
            writer.add_mesh("m", ts.rand(4, 3))

    found = written(tmp_path, fill)
    assert tensor_of(found["m_FACE"])[1:][0] == [1, 1, 3] and "m_COLOR" not in found
    name, data = plugin_of(found["m_VERTEX"])
    assert name == "mesh" and data[3] == 1 and data[5] == b'{"a": 1}' and data[6] == b"\x01\x04\x03" and data[7] == 6
    layout = dict(fields(dict(fields(found["custom_scalars__config__"][8]))[8]))
    title, lines, band = (content for _, content in fields(layout[2]))
    assert title == b"group" and [c for _, c in fields(dict(fields(lines))[2])] == [b"a", b"b"]
    assert [c for _, c in fields(dict(fields(dict(fields(band))[3]))[1])] == [b"v", b"l", b"u"]


def test_hyperparameters_have_a_folder_of_their_own(tmp_path):
    values = {"lr": 0.5, "kind": "adam", "deep": True, "none": None, "t": ts.tensor(2)}
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams(values, {"hp/loss": 0.25}, {"kind": ["adam", "sgd"]}, run_name="first", global_step=3)
        with pytest.raises(ValueError, match="lr"):
            writer.add_hparams({"lr": [1]}, {})
    found = {name: (step, value) for step, name, value in summaries(tmp_path / "first")}
    assert struct.unpack("<f", found["hp/loss"][1][2])[0] == 0.25 and found["hp/loss"][0] == 3
    start = dict(fields(plugin_of(found["_hparams_/session_start_info"][1])[1][3]))
    assert struct.unpack("<d", start[5])[0] > 0
    experiment = [(k, dict(fields(v))) for k, v in fields(plugin_of(found["_hparams_/experiment"][1])[1][2])]
    assert [(v[1], v[4]) for k, v in experiment if k == 4] == [(b"lr", 3), (b"kind", 1), (b"deep", 2), (b"t", 3)]
    assert [dict(fields(v[1]))[2] for k, v in experiment if k == 5] == [b"hp/loss"]


def test_vectors_for_the_projector(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        vectors = ts.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        writer.add_embedding(vectors, list("abc"), ts.rand(3, 3, 4, 5), 7, "a/b")
        writer.add_embedding(vectors.numpy(), [[1, "x"]] * 3, metadata_header=["n", "s"])
        with pytest.raises(ValueError, match="labels"):
            writer.add_embedding(vectors, ["a"])
    folder = tmp_path / "00007" / "a%2fb"
    assert (folder / "tensors.tsv").read_text() == "1.0\t2.0\n3.0\t4.0\n5.0\t6.0\n"
    assert (folder / "metadata.tsv").read_text() == "a\nb\nc\n"
    assert struct.unpack(">II", (folder / "sprite.png").read_bytes()[16:24]) == (10, 8)
    assert (tmp_path / "00000" / "default" / "metadata.tsv").read_text().startswith("n\ts\n1\tx\n")
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 2 and 'sprite {\n    image_path: "00007/a%2fb/sprite.png"' in config


def test_graphs_of_models(tmp_path, capsys):
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()))
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(net, ts.ones(2, 3), verbose=True)
        with pytest.raises(ValueError, match="input_to_model"):
            writer.add_graph(net)
    ((_, _, value),) = summaries(tmp_path)
    nodes = [dict(fields(node)) for number, node in fields(value[4]) if number == 1]
    sources = {
        node[1].decode(): [s.decode() for k, s in fields(raw) if k == 3]
        for node, raw in zip(nodes, [raw for number, raw in fields(value[4]) if number == 1], strict=True)
    }
    relu = "Sequential/Sequential[1]/ReLU[1]/relu"
    assert sources["output/0"] == [relu] and all(name in sources for names in sources.values() for name in names)
    assert sources["Sequential/Linear[0]/linear"] == ["input/0", "Sequential/0/weight", "Sequential/0/bias"]
    assert net.training and net[1][0].num_batches_tracked == 0 and relu in capsys.readouterr().out


def test_steps_that_are_begun_again(tmp_path):
    with SummaryWriter(tmp_path, purge_step=5):
        pass
    (path,) = tmp_path.iterdir()
    events = [dict(fields(message)) for message in records(path)]
    assert events[1][2] == 5 and events[1][3] == b"brain.Event:2" and dict(fields(events[2][7])) == {1: 1}


def test_what_is_no_number_of_a_curve(tmp_path):
    """Callers take NotImplementedError for values that are not to be shown."""
    with SummaryWriter(str(tmp_path)) as writer:
        for value in ([1.0], None, {}):
            with pytest.raises(NotImplementedError, match="add_scalar: expected a number"):
                writer.add_scalar("a", value)
        with pytest.raises(AssertionError, match=r"expected one element, got shape \(2,\)"):
            writer.add_scalar("a", ts.ones(2))
        writer.add_scalar("a", ts.ones(1, 1))
