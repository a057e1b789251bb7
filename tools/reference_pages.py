"""Writes docs/reference: one page per family of operators, an entry for each, from its declaration.

    python tools/reference_pages.py [folder]

Signature, what it does, dtypes, gradient, devices, source, and a call of the operator's own samples with its result,
computed while the page is written. ``make docs`` runs it; nothing of it is committed.
"""

from __future__ import annotations

import argparse
import html
import re
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import tesserack as ts
from tesserack import _native
from tesserack.testing import samples

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "core" / "native" / "ops"
# What a declaration looks like: def("name(...) -> ...") or a row {"name", "expression", ...} of a table.
DECLARED = re.compile(r'(?:def\(|Def d?\(|\{)\s*"([a-z_][a-z0-9_]*)(?:\.[A-Za-z0-9_]+)?(?:\(|",)')
DTYPES = {
    "all": "every dtype that its meaning allows",
    "exact": "float32 and float64",
    "floating": "floating",
    "integers": "integers and bool",
    "integral": "integers and bool",
    "numeric": "all but bool",
    "signed": "floating and signed integers",
}
KINDS = {
    "pointwise": "every device: one program, from which each backend makes its kernel",
    "primitive": "every device: its kernel where there is one, else smaller steps, else the cpu's by counted copies",
    "view": "every device: nothing is computed, the result shares the memory",
    "composite": "every device: made of other operators",
}
MOST = 24  # elements of a result that is shown


def families() -> dict[str, str]:
    """The source file of each operator, by base name, relative to the folder of operators."""
    found: dict[str, str] = {}
    for path in sorted(path for path in SOURCES.rglob("*.cpp") if path.parent.name != "pointwise"):
        for name in DECLARED.findall(path.read_text()):
            found.setdefault(name, str(path.relative_to(SOURCES)))
    return found


def named_in(base: str) -> str | None:
    """Where a name stands that is declared in a loop or by a function of a file."""
    pattern = re.compile(rf'"{base}["(.]')
    for path in sorted(path for path in SOURCES.rglob("*.cpp") if path.parent.name != "pointwise"):
        text = path.read_text()
        if "TS_OPERATORS" in text and pattern.search(text[text.index("TS_OPERATORS") :] + text):
            return str(path.relative_to(SOURCES))
    return None


def called(record: dict[str, Any]) -> str:
    """How users call it."""
    if record["namespaces"]:
        name = record["python_name"]
        space = record["namespaces"][0]
        return f"{space}.{name.removeprefix(space.split('.')[-1] + '_')}"
    return str(record["python_name"]) if record["function"] else f"Tensor.{record['python_name']}"


def signature(record: dict[str, Any]) -> str:
    """The schema with the name users write."""
    rest = record["schema"][record["schema"].index("(") :]
    rest = re.sub(r"\(a!?\)", "", rest).replace("Operand", "Tensor | Number").replace("Scalar ", "Number ")
    rest = rest.replace("ScalarType", "dtype").replace("Scalar?", "Number?")
    return f"tesserack.{called(record)}{rest}"


def gradient(record: dict[str, Any]) -> str:
    if not record["differentiable"]:
        return "none"
    if record["kind"] == "pointwise":
        return "of every order, derived from the expression or written beside it"
    return "of every order, through its parts" if record["composite"] else "of every order, written beside the kernel"


def _literal(value: Any) -> str:
    if isinstance(value, samples.Input):
        rounded = np.round(value.array, 2) if value.array.dtype.kind in "fc" else value.array
        dtype = {"f": "", "i": "", "b": "", "c": ""}.get(rounded.dtype.kind)
        if dtype is None or rounded.size == 0 or rounded.size > MOST:
            raise ValueError("not shown")
        return f"ts.tensor({rounded.tolist()})"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_literal(item) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if value is None or isinstance(value, (bool, int, float, str, complex)):
        return repr(value)
    raise ValueError("not shown")


def example(record: dict[str, Any]) -> list[str]:
    """A call that was run, with its result; nothing where no sample is short enough."""
    path = called(record)
    for sample in samples.samples(record["name"]):
        try:
            args = [_literal(value) for value in sample.args]
            args += [f"{key}={_literal(value)}" for key, value in sample.kwargs.items()]
            first, *rest = args
            if path.startswith("Tensor."):
                call = f"{first}.{path[7:]}({', '.join(rest)})"
            else:
                call = f"ts.{path}({', '.join(args)})"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = eval(call, {"ts": ts, "inf": float("inf"), "nan": float("nan")})
        except Exception:  # a sample that does not stand as it is written: another may
            continue
        tensors = result if isinstance(result, (list, tuple)) else [result]
        if len(call) < 200 and all(not isinstance(t, ts.Tensor) or t.numel() <= MOST for t in tensors):
            return ["```pycon", f">>> {call}", *repr(result).splitlines(), "```", ""]
    return []


def effects(record: dict[str, Any]) -> list[str]:
    said = record["effects"]
    told = {"random": "draws random numbers", "reads_host": "waits for the device and reads its numbers",
            "data_dependent": "the shape of the result follows from values"}  # fmt: skip
    return [text for key, text in told.items() if said[key]]


def entry(overloads: list[dict[str, Any]], forms: set[str], source: str) -> str:
    record = overloads[0]
    lines = [f"## {called(record)}", "", "```text", *(signature(one) for one in overloads), "```", ""]
    texts = dict.fromkeys(html.escape(one["doc"], quote=False) for one in overloads if one["doc"])
    lines += ["\n\n".join(re.sub(r"([*_<>\[\]|])", r"\\\1", text) for text in texts), ""]
    kinds = samples.dtypes(record["name"])
    facts = [
        ("Dtypes", DTYPES.get(kinds, kinds)),
        ("Gradient", gradient(record)),
        ("Devices", "every device: nothing is computed, the result shares the memory" if record["view"]
         else KINDS.get(record["kind"], "every device")),
    ]  # fmt: skip
    if forms:
        facts.append(("Forms", ", ".join(sorted(forms))))
    if said := effects(record):
        facts.append(("Effects", "; ".join(said)))
    facts.append(("Source", f"`core/native/ops/{source}`"))
    lines += [f"- {name}: {text}" for name, text in facts]
    return "\n".join([*lines, "", *example(record)])


def pages() -> dict[str, str]:
    """The text of each page by family."""
    sources = families()
    by_base: dict[str, list[dict[str, Any]]] = defaultdict(list)
    forms: dict[str, set[str]] = defaultdict(set)
    for record in _native._operators():
        if record["origin"] != "tesserack" or (record["hidden"] and not record["namespaces"]):
            continue
        if record["variant"] == "functional":
            by_base[record["base"]].append(record)
        elif record["variant"] == "out":
            forms[record["base"]].add("`out=`")
        elif record["variant"] == "inplace":
            forms[record["base"].removesuffix("_")].add(f"`Tensor.{record['python_name']}`")
    grouped: dict[str, list[str]] = defaultdict(list)
    for base in sorted(by_base):
        source = sources.get(base) or named_in(base)
        if source is not None:
            family = Path(source).stem
            grouped["indexing" if family == "index" else family].append(entry(by_base[base], forms[base], source))
    return {family: f"# {_title(family)}\n\n" + "\n".join(entries) for family, entries in sorted(grouped.items())}


def _title(family: str) -> str:
    path = next(SOURCES.rglob(f"{'index' if family == 'indexing' else family}.cpp"))
    head = (path.read_text().splitlines() or [""])[0]
    text = head.removeprefix("//").strip() if head.startswith("//") else ""
    name = family.replace("_", " ")
    return f"Operators: {name}" + (f" ({text.split('.')[0].split(':')[0].lower()})" if 0 < len(text) < 60 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "reference")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    ts.manual_seed(0)
    made = pages()
    for stale in folder.glob("*.md"):
        stale.unlink()
    for family, text in made.items():
        (folder / f"{family}.md").write_text(text)
    index = ["# Operators", "", "Every operator with a public name, by the file of its declaration.", ""]
    index += ["```{toctree}", ":maxdepth: 1", "", *made, "```", ""]
    (folder / "index.md").write_text("\n".join(index))
    print(f"{len(made)} pages in {folder}")


if __name__ == "__main__":
    main()
