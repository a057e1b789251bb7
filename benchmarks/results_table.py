"""Write results/README.md: the ratios of every processor met, beside the machine's limits.

python benchmarks/results_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rows import all_rows

RESULTS = Path(__file__).resolve().parent / "results"

HEADER = """# Measured ratios

Tesserack's time (or memory) over PyTorch's, smaller is better; made by `benchmarks/results_table.py` from the newest
file of each processor and number of threads. In brackets: Tesserack's time over what the machine at hand takes for the
bytes or products alone, measured in the same run. A row is to stay under its limit or within a tenth of the machine's
time (1.10); **bold** is what does neither.
"""


def newest() -> dict[tuple[str, int], dict[str, Any]]:
    """The latest file's data by processor and number of threads."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for path in RESULTS.glob("*.json"):
        data = json.loads(path.read_text())
        key = (data["processor"], data["threads"])
        if key not in found or data["time"] > found[key]["time"]:
            found[key] = data
    return dict(sorted(found.items()))


def cell(result: dict[str, Any] | None, limit: float | None) -> str:
    """A row's ratio, with its time over the machine's where that is known."""
    if result is None:
        return ""
    if "error" in result:
        return "**failed**"
    ratio, of_machine = result["ratio"], result.get("of machine")
    text = f"{ratio:.2f}" + ("" if of_machine is None else f" ({of_machine:.2f})")
    within = limit is None or ratio <= limit or (of_machine is not None and of_machine <= 1.1)
    return text if within else f"**{text}**"


def table(files: dict[tuple[str, int], dict[str, Any]]) -> str:
    """One line per row, one column per file."""
    heads = [f"{processor}, {threads} thread{'s' * (threads > 1)}" for processor, threads in files]
    lines = ["| row | limit | " + " | ".join(heads) + " |", "|---|" + "---:|" * (1 + len(heads))]
    by_row = [{result["row"]: result for result in data["rows"]} for data in files.values()]
    for row in all_rows().values():
        cells = [cell(rows.get(row.name), row.limit) for rows in by_row]
        limit = "" if row.limit is None else f"{row.limit:.2f}"
        lines.append("| " + " | ".join([f"`{row.name}`", limit, *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    path = RESULTS / "README.md"
    path.write_text(HEADER + "\n" + table(newest()) + "\n")
    print(path)


if __name__ == "__main__":
    main()
