"""Programs that take their output away: they end as they do under Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAMS = {
    "none": ("print(1); sys.stdout = None", 0),
    "none of errors": ("sys.stderr = None", 0),
    "nothing to say an error to": ("sys.stderr = None; raise ValueError", 1),
    "closed": ("print(1); sys.stdout.close()", 0),
    "closed errors": ("sys.stderr.close()", 0),
    "a status": ("sys.stdout = sys.stderr = None; sys.exit(3)", 3),
    "no file": ("sys.stdout = object()", 120),
    "detached": ("sys.stdout.detach()", 120),
    "a text": ("import io; sys.stdout = io.StringIO()", 0),
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_status_is_that_of_python(program, name):
    text, expected = PROGRAMS[name]
    for words in ((), ("-m", "tesserack", "run")):
        done = program.start(*words, "-c", f"import sys; {text}")
        assert done.returncode == expected, (words, done.stderr)
        assert "main(" not in done.stderr and done.stdout in ("", "1\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_shell_may_close_them_first(program, closed):
    for text, expected in (("print(1)", 0), ("raise ValueError", 1)):
        command = f'"$0" -m tesserack run -c "{text}" {closed}'
        done = subprocess.run(["bash", "-c", command, sys.executable], capture_output=True, text=True, timeout=120)
        assert done.returncode == expected and "main(" not in done.stderr


def test_a_reader_that_leaves_ends_it_quietly(program):
    """Also where the program took its output away, and where it is the errors that nobody reads."""
    lines = "for k in range(100000): print(k, file=sys.{})"
    for text, order in ((lines.format("stdout"), ""), (lines.format("stderr"), "2>&1 >/dev/null")):
        for before in ("", "; sys.stdout = None" if "stderr" in text else ""):
            called = f'"$0" -m tesserack run -c "import sys{before}\n{text}"'
            command = f"{called} {order} | head -1; exit ${{PIPESTATUS[0]}}"
            done = subprocess.run(["bash", "-c", command, sys.executable], capture_output=True, text=True, timeout=120)
            assert done.returncode == 141 and (done.stdout, done.stderr) == ("0\n", "")


def test_reports_do_not_go_where_results_do(program):
    done = program.start("-m", "tesserack", "run", "--report", "-c", "import sys, torch; sys.stderr = None; torch.ones")
    assert done.returncode == 0 and done.stdout == ""
