"""Accumulators that are vectors, for serial devices: reductions in float32 and in float64."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

from tesserack_kernelgen.vectors import has_vectors, lanes_of, vector_helpers, vector_program

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call
    from tesserack_kernelgen.kernel import Tensor
    from tesserack_kernelgen.templates.reduce import Fold

__all__ = ["DTYPES", "NOTHING", "Folding", "has_folds", "those"]

#: Of each C type the dtypes that are computed in it.
DTYPES = {"f32": ("float32", "float16", "bfloat16"), "f64": ("float64",)}
#: A program that calls no function.
NOTHING = SimpleNamespace(instructions=())
_SEVERAL = 4  # accumulators of one output, so that additions need not wait for one another


def those(lanes: int) -> str:
    """The macro ``THOSE(many)``: which elements of a vector are among the first ``many``."""
    return f"#define THOSE(many) ((VI)({', '.join(str(j) for j in range(lanes))}) < (VI)(many))"


def has_folds(call: Call, fold: Fold, dtype: str) -> bool:
    """Whether vectors can accumulate what a reduction keeps."""
    wider = call.prologue is not None and (fold.c, dtype) == ("f64", "float32")
    known = not fold.located and (dtype in DTYPES.get(fold.c, ()) or wider)
    return known and has_vectors(call, call.prologue or NOTHING, fold.c)


class Folding:
    """Statements that fold vectors of elements of a tensor into accumulators."""

    def __init__(self, call: Call, x: Tensor, fold: Fold):
        self.x, self.fold = x, fold
        self.lanes = lanes_of(call, fold.c)
        self.prologue = call.prologue
        types = vector_helpers(call, self.prologue or NOTHING, [x.dtype], [], False, self.lanes, fold.c)
        self.helpers = "\n".join(filter(None, (types, those(self.lanes), self._prologue())))

    def _prologue(self) -> str:
        """The function that makes what is folded of what is loaded."""
        if not self.prologue:
            return ""
        lines, (value,) = vector_program(self.prologue, ["x"], self.fold.c)
        return f"DEVICE V prologue_vector(V x) {{ {' '.join(lines)} return {value}; }}"

    def _load(self, at: str, many: str) -> str:
        loaded = f"load_{self.x.dtype}({self.x.pointer}, {at}, 1, {many})"
        return f"prologue_vector({loaded})" if self.prologue else loaded

    def start(self, names: list[str]) -> str:
        """Declares accumulators."""
        return "V " + ", ".join(f"{name} = (V)({self.fold.start})" for name in names) + ";"

    def take(self, acc: str, at: str) -> str:
        """Folds a whole vector."""
        return f"{{ const V v = {self._load(at, 'LANES')}; {self.fold.add(acc, 'v')} }}"

    def take_part(self, acc: str, at: str, many: str) -> str:
        """Folds the first ``many`` elements of a vector, none where that is not positive."""
        held = f"THOSE({many}) ? {self._load(at, many)} : (V)({self.fold.start})"
        return f"{{ const V v = {held}; {self.fold.add(acc, 'v')} }}"

    def take_last(self, acc: str, end: str, many: str) -> str:
        """Folds the last ``many`` elements of the whole vector that ends there."""
        held = f"THOSE({self.lanes} - {many}) ? (V)({self.fold.start}) : {self._load(f'{end} - {self.lanes}', 'LANES')}"
        return f"{{ const V v = {held}; {self.fold.add(acc, 'v')} }}"

    def along(self, loop: Callable[[str], str]) -> str:
        """Folds into ``acc`` what ``loop`` visits, given statements that fold ``run`` elements at ``line``."""
        names, n = [f"acc{k}" for k in range(_SEVERAL)], self.lanes
        several = " ".join(self.take(name, f"line + q + {k * n}") for k, name in enumerate(names))
        one_line = f"""idx q = 0;
    for (; q + {_SEVERAL * n} <= run; q += {_SEVERAL * n}) {{ {several} }}
    for (; q + {n} <= run; q += {n}) {self.take("acc0", "line + q")}
    if (q < run) {{
      const i32 many = (i32)(run - q);
      if (q) {self.take_last("acc1", "line + run", "many")} else {self.take_part("acc0", "line", "many")}
    }}"""
        together = " ".join(self.fold.add("acc0", name) for name in names[1:])
        return f"""{self.start(names)}
  {loop(one_line)}
  {together}
  {self._halves("acc0")}
  const ELEMENT acc = acc0.s0;"""

    def _halves(self, acc: str) -> str:
        """Folds a vector's elements into its first: one half into the other, and again."""
        n, apart, steps = self.lanes, self.lanes // 2, []
        while apart:
            other = "".join(f"{(j + apart) % n:x}" for j in range(n))
            steps.append(f"{{ const V v = {acc}.s{other}; {self.fold.add(acc, 'v')} }}")
            apart //= 2
        return " ".join(steps)

    def across(self, count: int, element: Callable[[str], str], kept: str) -> str:
        """Folds rows of ``many`` elements side by side, from ``first`` to ``last``, into ``{kept}[...]``.

        Args:
            count: accumulators, that many vectors side by side.
            element: given the number of a row, statements that declare ``at``, where its elements begin.
            kept: the name of the array.
        """
        names, n = [f"acc{k}" for k in range(count)], self.lanes
        whole = " ".join(self.take(name, f"at + {k * n}") for k, name in enumerate(names))
        part = " ".join(self.take_part(name, f"at + {k * n}", f"many - {k * n}") for k, name in enumerate(names))
        stores = " ".join(f"STORE_V({name}, {kept} + {k * n});" for k, name in enumerate(names))
        return f"""{self.start(names)}
  if (many == {count * n})
    for (idx r = first; r < last; ++r) {{ {element("r")} {whole} }}
  else
    for (idx r = first; r < last; ++r) {{ {element("r")} {part} }}
  ELEMENT {kept}[{count * n}];
  {stores}"""
