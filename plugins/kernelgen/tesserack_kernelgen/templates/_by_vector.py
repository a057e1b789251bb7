"""Products of a matrix with a vector on serial devices: nothing is brought together first.

Where results lie side by side some are added up at once, else lines of the matrix: in vectors of the dialect where it
has functions of them, else in loops that compilers make vectors of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tesserack_kernelgen.dtypes import accumulator, name_of
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.templates._dots import total
from tesserack_kernelgen.templates._folds import DTYPES, NOTHING
from tesserack_kernelgen.vectors import functions_text, has_vectors, lanes_of, vector_helpers

if TYPE_CHECKING:
    from tesserack.backends import Launch

    from tesserack_kernelgen.call import Call
    from tesserack_kernelgen.kernel import Tensor

__all__ = ["DEEP", "LONG", "by_vector"]

LONG, DEEP = 16, 8192  # terms of a sum, at least and at most: longer ones go by parts
_SUMS = 64  # that an item has side by side
_ROWS = 8  # lines that vectors go along at once
_ITEM = 65536  # elements of the matrix that an item reads

Store = Callable[[str, str], str]  # number of the result, value


def by_vector(
    call: Call, matrix: int, sizes: tuple[int, int], strides: Sequence[int], step: int, out_step: int
) -> Launch:
    """A matrix, input ``matrix`` as (results, k) of which one stride is 1, times a vector."""
    (n, depth), lines = sizes, strides[1] == 1
    kernel, dtype = Kernel(call, "vector_product"), name_of(call.outputs[0].dtype)
    c = accumulator(dtype)
    x, v, out = kernel.input(matrix), kernel.input(1 - matrix), kernel.output(0)
    count, length, by_out = kernel.own_index(n), kernel.own_index(depth), kernel.own_index(out_step)
    by_step, by = kernel.index(step), kernel.own_index(strides[0] if lines else strides[1])
    beside = max(1, min(_ITEM // depth, n))
    beside = beside if lines else -(-beside // _SUMS) * _SUMS
    some = kernel.own_index(beside)
    vectors = dtype in DTYPES.get(c, ()) and has_vectors(call, NOTHING, c)
    loops = (_Vectors if vectors else _Elements)(call, x, v, c, (length, by, by_step))

    def store(number: str, value: str) -> str:
        return out.store(f"({number}) * {by_out}", value, c)

    body = f"""
  const idx from = (idx)GROUP(0) * {some}, to = {count} - from < {some} ? {count} : from + {some};
  {loops.lines(store) if lines else loops.beside(store)}"""
    return kernel.launch(body, (-(-n // beside),), (1,), loops.helpers)


class _Elements:
    """Loops over results ``from`` to ``to`` that compilers make vectors of."""

    helpers = ""

    def __init__(self, call: Call, x: Tensor, v: Tensor, c: str, sizes: tuple[str, str, str]):
        self.x, self.v, self.c = x, v, c
        self.length, self.by, self.step = sizes

    def _factor(self, at: str) -> str:
        return self.v.load(f"({at}) * {self.step}", self.c)

    def lines(self, store: Store) -> str:
        """The sums go along lines of the matrix."""
        halves = [_SUMS >> k for k in range(1, _SUMS.bit_length())]
        tree = " ".join(f"UNROLL for (i32 j = 0; j < {h}; ++j) sums[j] += sums[j + {h}];" for h in halves)
        return f"""for (idx o = from; o < to; ++o) {{
    {self.c} sums[{_SUMS}];
    for (i32 j = 0; j < {_SUMS}; ++j) sums[j] = 0;
    const idx line = o * {self.by};
    idx r = 0;
    for (; r + {_SUMS} <= {self.length}; r += {_SUMS})
      UNROLL
      for (i32 j = 0; j < {_SUMS}; ++j) sums[j] += {self.x.load("line + r + j", self.c)} * {self._factor("r + j")};
    for (; r < {self.length}; ++r) sums[0] += {self.x.load("line + r", self.c)} * {self._factor("r")};
    {tree}
    {store("o", "sums[0]")}
  }}"""

    def beside(self, store: Store) -> str:
        """Results lie side by side."""
        x = self.x.load(f"r * {self.by} + o + j", self.c)
        return f"""for (idx o = from; o < to; o += {_SUMS}) {{
    const i32 many = to - o < {_SUMS} ? (i32)(to - o) : {_SUMS};
    {self.c} sums[{_SUMS}];
    for (i32 j = 0; j < {_SUMS}; ++j) sums[j] = 0;
    if (many == {_SUMS})
      for (idx r = 0; r < {self.length}; ++r) {{
        const {self.c} f = {self._factor("r")};
        UNROLL
        for (i32 j = 0; j < {_SUMS}; ++j) sums[j] += f * {x};
      }}
    else
      for (idx r = 0; r < {self.length}; ++r)
        for (i32 j = 0; j < many; ++j) sums[j] += {self._factor("r")} * {x};
    for (i32 j = 0; j < many; ++j) {{ {store("o + j", "sums[j]")} }}
  }}"""


class _Vectors(_Elements):
    """The same in vectors of the dialect."""

    def __init__(self, call: Call, x: Tensor, v: Tensor, c: str, sizes: tuple[str, str, str]):
        super().__init__(call, x, v, c, sizes)
        self.lanes = lanes_of(call, c)
        halves = [call.card.dialect.vector(c, self.lanes >> k) for k in range(1, self.lanes.bit_length() - 1)]
        types = vector_helpers(call, NOTHING, [x.dtype], [], False, self.lanes, c)
        self.helpers = "\n".join((types, functions_text(["_mad"], c), total(c, "V", halves)))

    def _load(self, of: Tensor, at: str, step: str, many: str) -> str:
        return f"load_{of.dtype}({of.pointer}, {at}, {step}, {many})"

    def _row(self, at: str, many: str) -> str:
        return self._load(self.x, at, "1", many)

    def lines(self, store: Store) -> str:
        rows = range(_ROWS)  # beyond the last, it is taken again
        starts = " ".join(f"const idx l{k} = (o + {k} < to ? o + {k} : to - 1) * {self.by};" for k in rows)

        def steps(many: str) -> str:
            taken = " ".join(f"s{k} = mad_vector({self._row(f'l{k} + r', many)}, f, s{k});" for k in rows)
            return f"const V f = {self._load(self.v, f'r * {self.step}', self.step, many)}; {taken}"

        stores = " ".join(f"if (o + {k} < to) {{ {store(f'o + {k}', f'total(s{k})')} }}" for k in rows)
        return f"""for (idx o = from; o < to; o += {_ROWS}) {{
    {starts}
    V {", ".join(f"s{k} = (V)(0)" for k in rows)};
    idx r = 0;
    for (; r + LANES <= {self.length}; r += LANES) {{ {steps("LANES")} }}
    if (r < {self.length}) {{ const i32 many = (i32)({self.length} - r); {steps("many")} }}
    {stores}
  }}"""

    def beside(self, store: Store) -> str:
        n, places = self.lanes, range(_SUMS // self.lanes)

        def loop(many: str) -> str:
            at = f"r * {self.by} + o"
            taken = (f"s{k} = mad_vector({self._row(f'{at} + {k * n}', many.format(k * n))}, f, s{k});" for k in places)
            factor = f"const V f = (V)({self._factor('r')});"
            return f"for (idx r = 0; r < {self.length}; ++r) {{ {factor} {' '.join(taken)} }}"

        return f"""for (idx o = from; o < to; o += {_SUMS}) {{
    const i32 many = to - o < {_SUMS} ? (i32)(to - o) : {_SUMS};
    V {", ".join(f"s{k} = (V)(0)" for k in places)};
    if (many == {_SUMS}) {loop("LANES")}
    else {loop("many - {}")}
    ELEMENT sums[{_SUMS}];
    {" ".join(f"STORE_V(s{k}, sums + {k * n});" for k in places)}
    for (i32 j = 0; j < many; ++j) {{ {store("o + j", "sums[j]")} }}
  }}"""
