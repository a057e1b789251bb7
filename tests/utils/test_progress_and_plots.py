"""Progress bars and plots: what is shown, and what is not imported."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack as ts
from tesserack.utils import plots
from tesserack.utils.progress import Progress, track


def run(style: str | None, total: int | None = 50) -> str:
    file = io.StringIO()
    with Progress(total, "learning", "scans", style, file) as bar:
        for step in range(50):
            bar.advance(1, loss=ts.tensor(1 / (step + 1)))
        bar.write("a line that stays")
    return file.getvalue()


def test_plain_lines_tell_each_tenth() -> None:
    lines = run(None).splitlines()
    assert len(lines) <= 13
    assert lines[-2].startswith("learning 50/50  loss 0.02  (") and lines[-2].endswith("scans/s)")
    assert "s left)" in lines[1] and lines[-1] == "a line that stays"


def test_plain_without_a_total() -> None:
    assert [line.split("  ")[0] for line in run("plain", None).splitlines()] == [
        "learning 1",
        "learning 10",
        "a line that stays",
        "learning 50",
    ]


@pytest.mark.parametrize("style", ["rich", "tqdm"])
def test_bars(style: str) -> None:
    pytest.importorskip(style)
    text = run(style)
    assert "learning" in text and "a line that stays" in text and "100%" in text and "0.02" in text


def test_a_bar_is_closed_by_an_error() -> None:
    file = io.StringIO()
    with pytest.raises(KeyError), Progress(10, style="plain", file=file) as bar:
        bar.advance(3)
        raise KeyError
    assert file.getvalue().startswith("training 3/10")


def test_track_gives_every_item(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(iter(range(5)), "counting")) == [0, 1, 2, 3, 4]
    assert list(track([7, 8], style="plain")) == [7, 8]
    assert "counting 5" in capsys.readouterr().err


def test_unknown_styles() -> None:
    with pytest.raises(ValueError, match="expected style among 'rich', 'tqdm', 'plain', got 'fancy'"):
        Progress(3, style="fancy")


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, tesserack as ts; from tesserack.utils import plots, progress; ts.metrics.Accuracy();"
        "list(progress.track([1, 2])); "
        "print({'rich', 'tqdm', 'matplotlib', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_pictures(tmp_path: Path, device: ts.device) -> None:
    pytest.importorskip("matplotlib")
    history = {"loss": [2.0, 1.0], "test loss": [2.5, 1.5], "accuracy": [0.5, ts.tensor(0.75, device=device)]}
    figure = plots.plot_history(history, tmp_path / "history.png")
    assert [len(panel.lines) for panel in figure.axes] == [2, 1]
    assert figure.axes[1].lines[0].get_ydata().tolist() == [0.5, 0.75]
    matrix = ts.metrics.ConfusionMatrix(3)
    matrix.update(ts.tensor([0, 1, 2, 2], device=device), ts.tensor([0, 1, 1, 2], device=device))
    figure = plots.plot_confusion_matrix(matrix.compute(), ["a", "b", "c"], tmp_path / "confusions.svg")
    assert [text.get_text() for text in figure.axes[0].texts] == list("100011001")
    plots.plot_images(ts.rand(5, 3, 4, 4, device=device), 2, tmp_path / "images.png")
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "confusions.svg").read_text()
    assert (tmp_path / "images.png").stat().st_size > 500
    assert "matplotlib.pyplot" not in sys.modules


def test_wrong_pictures() -> None:
    with pytest.raises(ValueError, match="at least one curve"):
        plots.plot_history({})
    with pytest.raises(ValueError, match=r"expected a square matrix, got rows of \[2\]"):
        plots.plot_confusion_matrix([[1, 2]])
    with pytest.raises(ValueError, match="expected 2 labels, got 3"):
        plots.plot_confusion_matrix([[1, 2], [3, 4]], "abc")
    with pytest.raises(ValueError, match=r"plot_images: .*got \(2, 2\)"):
        plots.plot_images(ts.zeros(2, 2))
