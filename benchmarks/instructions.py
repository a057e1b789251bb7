"""Instructions per call of the rows of ``overhead.py``, by library: what no other program on the machine changes.

``python benchmarks/instructions.py [ROW...]`` runs the rows under callgrind (of the system's package valgrind), twenty
thousand times each. With ``--profiler`` once before the profiler is imported and once after a profile of them was taken
and closed, in one process: what a profiler that is switched off costs. Counts differ by a few from run to run; two
commits are compared by running it in a checkout of each. They say nothing about stalls, or about where the linker put
things: time what differs, too.
"""

from __future__ import annotations

import collections
import os
import shutil
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path

CALLS = 20_000
SHOWN = ("libtesserack", "_native", "libtesserack_cpu", "libpython")


AFTER = ", after a profile"


def run_rows(names: list[str], profiler: bool) -> None:
    """In the process that callgrind watches: counting is on from one dump to the next."""
    import overhead
    import tesserack as ts
    from rows import all_rows

    def control(*arguments: str) -> None:
        command = ["callgrind_control", *arguments, str(os.getpid())]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    rows = [row for row in all_rows().values() if row.family == overhead.__name__ and (not names or row.name in names)]
    timers = {row.name: timeit.Timer(row.statement, globals=row.setup(ts, "cpu")) for row in rows}

    def count(suffix: str) -> None:
        for name, timer in timers.items():
            timer.timeit(50)
            control("-z")
            timer.timeit(CALLS)
            control("-d", "row" + (name + suffix).encode().hex())  # a shell reads it on its way

    if profiler and "tesserack.utils.profiler" in sys.modules:
        raise RuntimeError("instructions: expected the profiler not to be imported yet")
    control("-i", "on")
    count("")
    if profiler:
        from tesserack.utils.profiler import profile

        with profile() as taken:
            for timer in timers.values():
                timer.timeit(5)
        if not taken.events():
            raise RuntimeError("instructions: expected the profile to hold the rows, got nothing")
        count(AFTER)


def library_of(path: str) -> str:
    """The short name of an object file: of an interpreter that is one program, that of its library."""
    name = Path(path).name.partition(".")[0]
    return "libpython" if name.startswith(("python", "libpython")) else name


def counted(dump: Path) -> tuple[str, collections.Counter[str]]:
    """The row a dump is of, and its instructions by library; those of calls are counted where they are executed."""
    counts: collections.Counter[str] = collections.Counter()
    names: dict[str, str] = {}
    row = library = ""
    inclusive = False
    for line in dump.read_text(errors="replace").splitlines():
        kind, _, value = line.partition("=")
        if line.startswith("desc: Trigger:"):
            word = line.removeprefix("desc: Trigger:").strip().split(" ")[-1]
            row = bytes.fromhex(word[3:]).decode() if word.startswith("row") else word
        elif kind in ("ob", "cob"):
            number, _, path = value.partition(" ")
            names.setdefault(number, path)
            library = library_of(names[number]) if kind == "ob" else library
        elif kind == "calls":
            inclusive = True
        elif line[:1] in "+-*0123456789" and line:
            counts[library] += 0 if inclusive else int(line.split()[-1])
            inclusive = False
    return row, counts


def main(names: list[str], options: list[str]) -> int:
    """Run the rows and print the table."""
    if not shutil.which("valgrind"):
        print("instructions: expected valgrind on the path; install the system's package of that name", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        command = [*tool, sys.executable, __file__, "--rows", *options, *names]
        environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONHASHSEED="0")
        subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=True)
        dumps = sorted(Path(folder).glob("out.*"), key=lambda path: int(path.suffix[1:]))
        found = [counted(dump) for dump in dumps]
    print(f"{'instructions per call':44}" + "".join(f"{name:>18}" for name in ("all", *SHOWN)))
    for row, counts in found:
        if counts.total() > CALLS:
            numbers = [counts.total(), *(counts[name] for name in SHOWN)]
            print(f"{row:44}" + "".join(f"{number / CALLS:18.0f}" for number in numbers))
    return 0


if __name__ == "__main__":
    chosen = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--rows" in sys.argv:
        run_rows(chosen, "--profiler" in sys.argv)
    else:
        sys.exit(main(chosen, [word for word in sys.argv[1:] if word == "--profiler"]))
