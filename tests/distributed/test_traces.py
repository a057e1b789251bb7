"""What ranks write of what they did last, and what ``tesserack trace-ranks`` makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tesserack.cli import main


def lined_up(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["trace-ranks", *words])
    return status, capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("stopped", ["2 of 3 ranks wrote", "nothing of rank 1", "rank 1 did not come within 5 s"]),
        ("another", ["ranks called different collectives", "rank 1 broadcast #2 of float32[4] at ", "(failed)"]),
        ("size", ["all_reduce #2 of float32[5]", "failing.py:"]),
    ],
)
def test_a_failure_is_written_and_told(
    launch: Any, tmp_path: Path, how: str, says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    launch("failing.py", 3, how, variables={"TESSERACK_TRACE_RANKS": str(tmp_path)})
    status, shown = lined_up(capsys, str(tmp_path))
    assert status == 1
    for text in says:
        assert text in shown, shown


def test_ranks_that_hang_write_when_they_are_asked(
    launch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = launch("hanging.py", 3, tmp_path, variables={"TESSERACK_TRACE_RANKS": str(tmp_path)})
    assert done.returncode == 0, done.stderr[-2000:]
    status, shown = lined_up(capsys, str(tmp_path), "--last", "4")
    assert status == 1 and "behind: rank 1 on " in shown and "others are in broadcast #" in shown, shown
    assert "rank 2  broadcast #" in shown  # of the last four
    status, shown = lined_up(capsys, *map(str, sorted(tmp_path.glob("*.json"))), "--json")
    stands = json.loads(shown)["groups"][0]["stands"]
    assert stands["0"]["began"] == stands["1"]["began"] + 1 == stands["2"]["began"]


def test_what_no_rank_wrote_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"format": "another"}')
    assert main(["trace-ranks", str(file)]) == 2 and "expected what a rank wrote" in capsys.readouterr().err
    assert main(["trace-ranks", str(tmp_path / "nothing")]) == 2
