"""How a device comes to the result of each operator, and what its author could make faster next."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tesserack.testing.conformance.areas import entry_point

if TYPE_CHECKING:
    from tesserack.testing.conformance.results import Results

__all__ = ["WAYS", "suggestions", "ways"]

WAYS = {
    "native": "by a kernel of the device's own",
    "decomposed": "from other operators, on the device",
    "fallback": "on the cpu, with copies there and back",
    "view": "without a kernel",
}
# The operator that a timed case stands for, where that is not its first word.
_TIMED = {"transposed": "contiguous", "max": "amax", "attention": "scaled_dot_product_attention", "linear": "linear"}
_MOST = 8


def ways(results: Results) -> dict[str, str]:
    """Of every operator that ran: "native", "decomposed", "fallback" or "view"."""
    from tesserack.testing.samples import records

    kernels = results.environment["capabilities"].get("kernels", {})
    helped = {case.properties.get("op") for case in results.cases if case.properties.get("fallbacks")}
    ran = {
        str(c.properties["op"]) for c in results.cases if c.area in ("required", "operators") and "op" in c.properties
    }
    known = records()
    return {
        name: "fallback" if name in helped else _way(name, known[name], kernels)
        for name in sorted(ran)
        if name in known
    }


def _way(name: str, record: dict[str, Any], kernels: dict[str, Any]) -> str:
    if record["view"]:
        return "view"
    declared = record["kernel"]["name"] if record["kernel"] else name
    own = {name, declared, entry_point(name)} & kernels.keys() or (record["pointwise"] and "pointwise" in kernels)
    return "native" if own else "decomposed"


def suggestions(results: Results) -> list[str]:
    """What to optimise next, the most promising first: what is slowest beside the cpu, then what runs there."""
    found = ways(results)
    timed = []
    for case in results.cases:
        for timing in case.properties.get("timings", []) if results.device != "cpu" else []:
            ratio = timing["device"] / timing["cpu"]
            if ratio > 1:
                timed.append((ratio, timing["name"], str(case.properties["direction"])))
    lines, told = [], set()
    for ratio, name, direction in sorted(timed, reverse=True):
        word = name.split()[0].rstrip(",")
        operator = _TIMED.get(word, word)
        if operator not in told:
            told.add(operator)
            way = found.get(operator, "")
            how = {"decomposed": f"; a kernel {operator!r} would replace its parts", "fallback": "; runs on the cpu"}
            lines.append(f"{name} ({direction}): {ratio:.1f} times the cpu's time{how.get(way, '')}")
    helped: Counter[str] = Counter(k for case in results.cases for k in case.properties.get("fallbacks", {}))
    lacking = [f"{name}: ran on the cpu in {count} tests; give it a kernel" for name, count in helped.most_common()]
    half = _MOST // 2
    return [*lines[: max(half, _MOST - len(lacking))], *lacking][:_MOST]
