"""What a run does, where people look: JSON lines, TensorBoard, MLflow, Weights & Biases, or a plugin's place.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, track("json", folder=folder, project="digits") as run:
...     run.log({"loss": 0.5, "accuracy": 0.9}, step=1)
...     print((run.folder / "log.jsonl").read_text().splitlines()[-1])
{"step": 1, "loss": 0.5, "accuracy": 0.9}
"""

from tesserack.utils.tracking._run import Run, track, trackers
from tesserack.utils.tracking._tracker import Tracker

__all__ = ["Run", "Tracker", "track", "trackers"]
