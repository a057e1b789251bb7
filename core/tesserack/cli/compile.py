"""``tesserack compile SCRIPT``: a program with its modules compiled, and what that gained."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from tesserack.cli import CommandError
from tesserack.cli._output import table, tell
from tesserack.cli.run import OPTIONS, begin, execute, parse, print_report
from tesserack.jit._compile.measured import Measured, watching

__all__ = ["run"]

USAGE = f"""usage: tesserack compile [OPTION ...] (SCRIPT | -m MODULE | -c TEXT) [OPTION ...] [--] [ARGUMENT ...]

Runs a program as "tesserack run" does, with every module compiled that the program calls itself, and says at the end
what that gained: calls run by turns as Python and as graphs at first, which give the same results.

{OPTIONS}"""

HEADER = ("module", "calls", "graphs", "call as Python", "as graph", "ratio", "step as Python", "as graph", "gained")


def run(words: list[str]) -> int:
    """Run the program and print to stderr what compiling gained; the status is the program's."""
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    request = parse(words, "compile", USAGE)
    begin(request)
    start = time.perf_counter()
    try:
        with watching() as met:
            try:
                status = execute(request)
            except CommandError:
                raise
            except BaseException:  # sys.exit() of the program too
                _print(met, start)
                raise
        _print(met, start)
        return status
    finally:
        if request.report:
            print_report()


def _print(met: list[Measured], start: float) -> None:
    tell("\n".join(_lines(met, time.perf_counter() - start)))


def _lines(met: list[Measured], whole: float) -> Iterator[str]:
    if not met:
        yield "tesserack compile: the program called no module"
        return
    gained, capturing = (sum(values) for values in zip(*((m.gained(), m.capturing) for m in met), strict=True))
    yield (
        f"tesserack compile: {whole:.1f} s, of which making graphs took {capturing * 1e3:.0f} ms; "
        f"calls by graph took {abs(gained) * 1e3:.0f} ms {'less' if gained >= 0 else 'more'} than Python's would have"
    )
    yield from table(HEADER, [_row(m) for m in met])
    for m in met:
        if reason := m.reason():
            yield f"{m.name} runs as Python: {reason}"


def _row(m: Measured) -> list[str]:
    count = str(len(m.compiled.places))
    times = m.whole()
    if times is None:
        return [m.name, str(m.calls), count, *[""] * 6]
    call = [statistics.median(times.plain), statistics.median(times.graph)]
    steps = [_ms(statistics.median(s)) if s else "" for s in (times.plain_steps, times.graph_steps)]
    ratio = f"{call[1] / call[0]:.2f}" if call[0] else ""
    return [m.name, str(m.calls), count, *map(_ms, call), ratio, *steps, _ms(m.gained())]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
