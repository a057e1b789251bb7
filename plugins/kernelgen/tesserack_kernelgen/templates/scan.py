"""Inclusive scans along the last dim.

Where rows lie side by side in memory, neighbours are taken together; long rows that are few are cut into parts, of
which one kernel finds the totals and a second starts each from those before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, REAL, STORAGE, name_of, register
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates, lines, offset_text
from tesserack_kernelgen.templates._registry import template
from tesserack_kernelgen.templates.reduce import DTYPE, highest, lowest
from tesserack_kernelgen.vectors import vector_type

__all__ = ["scan"]

_SHORT = 32  # elements up to which an item of a GPU has a row of its own
_BLOCK = 8  # elements of a row that an item of a serial device adds up in a vector
_CALM = 32  # of which it asks at once whether one replaces the running extreme
_ACROSS = 512  # at most so many where they lie side by side
_EACH = 4  # neighbours that an item takes where a group scans one row
_PARTS = 64  # at most, where an item finds its start from the totals before it


@template("scan")
def scan(call: Call) -> LaunchPlan:
    """``out0`` = running opcode of ``in0``; ``out1`` = where the running extreme was seen last.

    Sums and products of float32 are kept in float64 where the device has it.
    """
    plan = _Plan(call)
    if plan.parts == 1:
        return LaunchPlan([_Scan(plan, "scan").launch()])
    return LaunchPlan([_Scan(plan, "scan_totals").launch(), _Scan(plan, "scan_parts").launch()], plan.workspace)


class _Plan:
    """Which form a call takes, and into how many parts its rows are cut."""

    def __init__(self, call: Call):
        x, device = call.inputs[0], call.device
        self.call = call
        self.rows: int = math.prod(x.shape[:-1])
        self.n: int = x.shape[-1]
        self.sizes, self.strides = lines(x.shape, *(t.strides for t in (x, *call.outputs)))
        self.located = len(call.outputs) == 2
        self.stored = register(call.compute)
        exact = call.opcode in ("sum", "prod") and self.stored == "f32" and device.fp64
        self.c = "f64" if exact else self.stored
        beside, units = self.sizes[-1], 2 * device.compute_units
        near = beside >= 8 and x.strides[-1] != 1 and all(steps[-1] == 1 for steps in self.strides)
        self.width, self.group = 1, device.group
        if device.serial:
            self.group, self.form = 1, "across" if near else "alone"
            if near:
                self.width = min(max(-(-self.rows // (2 * units)) + 15 & -16, 64), _ACROSS)
            tasks = self.rows // beside * -(-beside // self.width) if near else self.rows
            most = min(self.n // 64, self.n * min(self.rows, self.width) // 4096, _PARTS)
        elif near or self.n <= _SHORT or device.group == 1:
            self.form, tasks, most = "alone", -(-self.rows // device.group), min(self.n // 64, _PARTS)
        else:
            self.form, tasks, most = "together", self.rows, min(self.n // (_EACH * device.group), device.group)
        parts: int = min(-(-units // tasks), max(most, 1)) if tasks < units // 2 else 1
        self.length = -(-self.n // parts)
        self.parts: int = -(-self.n // self.length)

    @property
    def places(self) -> int:
        """Where in the workspace the positions of the totals are."""
        return -(-self.parts * self.rows * ITEMSIZE[DTYPE[self.c]] // 16) * 16

    @property
    def workspace(self) -> int:
        return self.places + (8 * self.parts * self.rows if self.located else 0)


class _Scan:
    """One kernel: ``scan`` of whole rows, ``scan_totals`` of parts, and ``scan_parts`` that starts from those."""

    def __init__(self, plan: _Plan, name: str):
        self.plan, self.kernel = plan, Kernel(plan.call, name)
        kernel, call, self.c = self.kernel, plan.call, plan.c
        self.start = {"sum": "0", "prod": "1"}.get(call.opcode)
        self.start = self.start or (lowest(self.c) if call.opcode == "max" else highest(self.c))
        self.finds, self.begins = name == "scan_totals", name == "scan_parts"
        source, outputs = kernel.input(0), [] if self.finds else [kernel.output(k) for k in range(len(call.outputs))]
        if name != "scan":
            self.totals = kernel.workspace(0, DTYPE[self.c])
            self.spots = kernel.workspace(plan.places, "int64") if plan.located else self.totals
        self.rows, self.n, self.length = kernel.own_indices((plan.rows, plan.n, plan.length))
        self.names, self.sizes = [f"k{d}" for d in range(len(plan.sizes))], kernel.own_indices(plan.sizes)
        steps = kernel.indices(t.strides[-1] for t in (call.inputs[0], *call.outputs))
        self.bases = [offset_text(self.names, kernel.own_indices(s)) for s in plan.strides[: 1 + len(outputs)]]
        self.steps = steps[: 1 + len(outputs)]
        self.source, self.outputs = source, outputs

    def launch(self) -> Launch:
        """The launch in the form that the plan chose."""
        forms: dict[str, Callable[[], Launch]] = {
            "alone": self._alone, "across": self._across, "together": self._together
        }  # fmt: skip
        return forms[self.plan.form]()

    # --- statements -------------------------------------------------------------------------------------------------

    def _take(self, acc: str, at: str, value: str, position: str) -> str:
        """Take what comes later into what came before; of equals the later one stays, and the last NaN."""
        opcode = self.plan.call.opcode
        if opcode in ("sum", "prod"):
            return f"{acc} {'+' if opcode == 'sum' else '*'}= {value};"
        better = f"({value} {'>' if opcode == 'max' else '<'}= {acc})"
        better = f"({better} | ({value} != {value}))" if self.c in REAL else better
        return f"if ({better} & ({position} >= {at})) {{ {acc} = {value}; {at} = {position}; }}"

    def _select(self, acc: str, at: str, value: str, position: str) -> str:
        """The same of one element, without a branch, which compilers would not turn into vectors."""
        if self.plan.call.opcode in ("sum", "prod"):
            return self._take(acc, at, value, position)
        better = f"{value} {'>' if self.plan.call.opcode == 'max' else '<'}= {acc}"
        better += f" | ({value} != {value})" if self.c in REAL else ""
        keep = f"{at} = better ? {position} : {at};" if self.plan.located else ""
        return f"const i32 better = ({better}); {acc} = better ? {value} : {acc}; {keep}"

    def _load(self, at: str) -> str:
        return f"const {self.c} x = ({self.c}){self.source.load(at, self.plan.stored)};"

    def _stores(self, at: Callable[[int], str], value: str, position: str) -> str:
        """Statements that store a value and its position; nothing where totals alone are found."""
        texts = (f"({self.plan.stored})({value})", self.plan.stored), (f"(i64)({position})", "i64")
        return " ".join(
            out.store(at(k), *text) for k, (out, text) in enumerate(zip(self.outputs, texts, strict=False), 1)
        )

    def _total(self, number: str) -> str:
        """Statements that declare ``t`` and ``spot``, a total and its position; nothing where none are read."""
        if not self.begins:
            return ""
        spot = self.spots.load(number, "i64") if self.plan.located else "0"
        return f"const {self.c} t = {self.totals.load(number, self.c)}; const idx spot = (idx){spot};"

    def _keep_total(self, number: str, value: str, position: str) -> str:
        if not self.finds:
            return ""
        spot = self.spots.store(number, f"(i64)({position})", "i64") if self.plan.located else ""
        return f"{self.totals.store(number, value, self.c)} {spot}"

    # --- forms ------------------------------------------------------------------------------------------------------

    def _alone(self) -> Launch:
        """An item takes a row, or a part of one, element by element."""
        plan = self.plan
        bases = " ".join(f"const idx base{k} = {base};" for k, base in enumerate(self.bases))
        count = self.kernel.own_index(plan.rows * plan.parts)
        before = f"""for (idx p = 0; p < part; ++p) {{
    {self._total(f"p * {self.rows} + row")}
    {self._take("acc", "at", "t", "spot")}
  }}"""
        blocks, helpers = "", ""
        if plan.call.device.serial and plan.call.opcode in ("max", "min"):
            blocks = self._calm_blocks()
        elif plan.call.device.serial and self.c in REAL and plan.call.card.dialect.vector_functions:
            blocks, helpers = self._vector_blocks(), self._vector_types()
        body = f"""
  const idx number = (idx)GROUP(0) * {plan.group} + LANE(0);
  if (number >= {count}) return;
  const idx row = number % {self.rows}, part = number / {self.rows};
  {coordinates("row", self.sizes, self.names)} {bases}
  const idx from = part * {self.length}, to = {self.n} - from < {self.length} ? {self.n} : from + {self.length};
  {self.c} acc = {self.start};
  idx at = -1, r = from;
  {before if self.begins else ""}
  {blocks}
  for (; r < to; ++r) {{ {self._element("r")} }}
  {self._keep_total("number", "acc", "at")}"""
        return self.kernel.launch(body, (-(-plan.rows * plan.parts // plan.group),), (plan.group,), helpers)

    def _at(self, k: int, r: str) -> str:
        return f"base{k} + ({r}) * {self.steps[k]}"

    def _element(self, r: str) -> str:
        stores = self._stores(lambda k: self._at(k, r), "acc", "at")
        return f"{self._load(self._at(0, r))} {self._take('acc', 'at', 'x', f'({r})')} {stores}"

    def _calm_blocks(self) -> str:
        """A running extreme stays as it is over most blocks: those are filled at once."""
        nan = " | (x != x)" if self.c in REAL else ""
        sign = ">" if self.plan.call.opcode == "max" else "<"
        each = f"for (i32 j = 0; j < {_CALM}; ++j)"
        return f"""for (; r + {_CALM} <= to; r += {_CALM}) {{
    i32 any = r == from;
    {each} {{ {self._load(self._at(0, "r + j"))} any |= (x {sign}= acc){nan}; }}
    if (any) {{
      {each} {{ {self._element("r + j")} }}
    }} else {{
      {each} {{ {self._stores(lambda k: self._at(k, "r + j"), "acc", "at")} }}
    }}
  }}"""

    def _vector_types(self) -> str:
        """The vector of sums, and those in memory of operands that lie in order."""
        operands = [self.plan.call.inputs[0], *self.plan.call.outputs[: len(self.outputs)]]
        near = [
            f"typedef {vector_type(name_of(x.dtype))}{_BLOCK} near{k} ALIGNED({ITEMSIZE[name_of(x.dtype)]});"
            for k, x in enumerate(operands)
        ]
        return "\n".join((f"typedef {vector_type(DTYPE[self.c])}{_BLOCK} V;", *near))

    def _vector_blocks(self) -> str:
        """Three shifted additions make the sums of a block, then those before it join."""
        sign, c = "+" if self.plan.call.opcode == "sum" else "*", vector_type(DTYPE[self.c])
        lanes = [f"v.s{j}" for j in range(_BLOCK)]
        none = "-0.0" if sign == "+" else "1"  # what is no operation to compilers
        shifts = []
        for step in (1, 2, 4):
            given = ", ".join([*[f"({self.c}){none}"] * step, *lanes[: _BLOCK - step]])
            shifts.append(f"v = v {sign} (V)({given});")
        pointer = f"(GLOBAL const near0*)((GLOBAL const {STORAGE[self.source.dtype]}*)({self.source.pointer}) + "
        if self._near(0, self.source.dtype):
            load = f"convert_{c}{_BLOCK}(*({pointer}{self._at(0, 'r')})))"
        else:
            each = [f"({self.c}){self.source.load(self._at(0, f'r + {j}'), self.plan.stored)}" for j in range(_BLOCK)]
            load = f"(V)({', '.join(each)})"
        stores = ""
        if self.outputs and self._near(1, self.outputs[0].dtype):
            out = self.outputs[0]
            pointer = f"(GLOBAL near1*)((GLOBAL {STORAGE[out.dtype]}*)({out.pointer}) + {self._at(1, 'r')})"
            stores = f"*({pointer}) = convert_{vector_type(out.dtype)}{_BLOCK}(v);"
        elif self.outputs:
            stores = " ".join(
                self._stores(lambda k, r=f"r + {j}": self._at(k, r), f"v.s{j}", "0")  # type: ignore[misc]
                for j in range(_BLOCK)
            )
        return f"""for (; r + {_BLOCK} <= to; r += {_BLOCK}) {{
    V v = {load};
    {" ".join(shifts)}
    const {self.c} whole = v.s{_BLOCK - 1};
    v = (V)(acc) {sign} v;
    acc = acc {sign} whole;
    {stores}
  }}"""

    def _near(self, k: int, dtype: str) -> bool:
        return self.steps[k] == "1" and dtype not in ("bool", "float16", "bfloat16")

    def _across(self) -> Launch:
        """An item of a serial device takes many rows that lie side by side, one element of each at a time."""
        plan, beside = self.plan, self.plan.sizes[-1]
        per_line = -(-beside // plan.width)
        tasks = plan.rows // beside * per_line
        width, inner, blocks, all_blocks = self.kernel.own_indices((plan.width, beside, per_line, tasks))
        bases = " ".join(f"const idx base{k} = {base};" for k, base in enumerate(self.bases))
        each = "for (i32 j = 0; j < many; ++j)"
        before = f"""for (idx p = 0; p < part; ++p)
    {each} {{
      {self._total(f"p * {self.rows} + row + j")}
      {self._take("acc[j]", "at[j]", "t", "spot")}
    }}"""
        stores = self._stores(lambda k: f"base{k} + r * {self.steps[k]} + j", "acc[j]", "at[j]")
        keep = f"{each} {{ {self._keep_total(f'part * {self.rows} + row + j', 'acc[j]', 'at[j]')} }}"
        body = f"""
  const idx task = (idx)GROUP(0), part = task / {all_blocks}, block = task % {all_blocks};
  const idx column = block % {blocks} * {width}, row = block / {blocks} * {inner} + column;
  const i32 many = (i32)({inner} - column < {width} ? {inner} - column : {width});
  const idx from = part * {self.length}, to = {self.n} - from < {self.length} ? {self.n} : from + {self.length};
  {coordinates("row", self.sizes, self.names)} {bases}
  {self.c} acc[{_ACROSS}];
  idx at[{_ACROSS}];
  {each} {{ acc[j] = {self.start}; at[j] = -1; }}
  {before if self.begins else ""}
  for (idx r = from; r < to; ++r) {{
    {each} {{ {self._load(f"base0 + r * {self.steps[0]} + j")} {self._select("acc[j]", "at[j]", "x", "r")} }}
    {f"{each} {{ {stores} }}" if stores else ""}
  }}
  {keep if self.finds else ""}"""
        return self.kernel.launch(body, (tasks * plan.parts,), (1,))

    def _together(self) -> Launch:
        """A group per row or part: blocks of some neighbours per item, with a carry from each to the next."""
        plan, group = self.plan, self.plan.group
        bases = " ".join(f"const idx base{k} = {base};" for k, base in enumerate(self.bases))
        places = f"LOCAL_ARRAY(idx, places, {group});" if plan.located else ""
        last = f"places[{group - 1}]" if plan.located else "0"
        stores = self._stores(lambda k: f"base{k} + (r + k) * {self.steps[k]}", "w", "p")
        left = "places[LANE(0) - 1]" if plan.located else "0"
        store = f"""{self.c} before = carry;
    idx seen = carried;
    if (LANE(0) > 0) {{ {self._take("before", "seen", "values[LANE(0) - 1]", left)} }}
    UNROLL for (i32 k = 0; k < {_EACH}; ++k)
      if (r + k < to) {{
        {self.c} w = before;
        idx p = seen;
        {self._take("w", "p", "own[k]", "spots[k]")}
        {stores}
      }}"""
        start = f"""{{
    {self.c} v = {self.start};
    idx at = -1;
    if (LANE(0) < part) {{ {self._total(f"LANE(0) * {self.rows} + row")} v = t; at = spot; }}
    {self._group_scan()}
    carry = values[{group - 1}];
    carried = {last};
    BARRIER;
  }}"""
        body = f"""
  LOCAL_ARRAY({self.c}, values, {group});
  {places}
  const idx row = (idx)GROUP(0) % {self.rows}, part = (idx)GROUP(0) / {self.rows};
  {coordinates("row", self.sizes, self.names)} {bases}
  const idx from = part * {self.length}, to = {self.n} - from < {self.length} ? {self.n} : from + {self.length};
  {self.c} carry = {self.start};
  idx carried = -1;
  {start if self.begins else ""}
  for (idx block = from; block < to; block += {group * _EACH}) {{
    const idx r = block + LANE(0) * {_EACH};
    {self.c} v = {self.start}, own[{_EACH}];
    idx at = -1, spots[{_EACH}];
    UNROLL for (i32 k = 0; k < {_EACH}; ++k) {{
      if (r + k < to) {{
        {self._load(f"base0 + (r + k) * {self.steps[0]}")}
        {self._take("v", "at", "x", "(r + k)")}
      }}
      own[k] = v;
      spots[k] = at;
    }}
    {self._group_scan()}
    {"" if self.finds else store}
    {self._take("carry", "carried", f"values[{group - 1}]", last)}
    BARRIER;
  }}
  {f"if (LANE(0) == 0) {{ {self._keep_total('GROUP(0)', 'carry', 'carried')} }}" if self.finds else ""}"""
        return self.kernel.launch(body, (plan.rows * plan.parts,), (group,))

    def _group_scan(self) -> str:
        """The scan of every item's ``v`` and ``at``, left in ``values`` and ``places``."""
        spot = "places[LANE(0) - step]" if self.plan.located else "0"
        keep = "places[LANE(0)] = at;" if self.plan.located else ""
        return f"""for (i32 step = 1; step < {self.plan.group}; step *= 2) {{
      values[LANE(0)] = v; {keep}
      BARRIER;
      if (LANE(0) >= step) {{
        {self.c} w = values[LANE(0) - step];
        idx p = {spot};
        {self._take("w", "p", "v", "at")}
        v = w;
        at = p;
      }}
      BARRIER;
    }}
    values[LANE(0)] = v; {keep}
    BARRIER;"""
