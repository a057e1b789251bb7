"""Connectionist temporal classification: a group per sequence goes through its steps, an item per place of labels."""

from __future__ import annotations

import math
from typing import Any

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, STORAGE, name_of
from tesserack_kernelgen.emit import EXP_PLAIN
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.templates._registry import template

__all__ = ["ctc_loss", "ctc_loss_backward"]

# log(exp(a) + exp(b) + exp(c)), also where all are minus infinity.
_HELPERS = """
DEVICE {c} log_sum({c} a, {c} b, {c} c, {c} none) {{
  {c} top = a > b ? a : b;
  top = top > c ? top : c;
  const {c} sum = {log}({exp}(a - top) + {exp}(b - top) + {exp}(c - top));
  return top > none ? top + sum : top;
}}
"""


def _log_plain(c: str, terms: int) -> str:
    """The logarithm of 1 to 3 as a series of (y - 1) / (y + 1), which lies within a fifth once what is above 1.5 is
    halved: without branches or calls, as ``exp_plain``."""
    f = "f" if c == "f32" else ""
    series = f"{1 / (2 * terms - 1)!r}{f}"
    for k in range(terms - 1, 0, -1):
        series = f"({series} * w + {1 / (2 * k - 1)!r}{f})"
    return f"""
DEVICE {c} log_plain({c} x) {{
  const {c} y = x > 1.5{f} ? 0.5{f} * x : x, z = (y - 1) / (y + 1), w = z * z;
  return (x > 1.5{f} ? {math.log(2)!r}{f} : 0) + 2 * z * {series};
}}
"""


#: With so many terms that what is left out is below the rounding of numbers about 1.
_LOG_PLAIN = {"f32": _log_plain("f32", 6), "f64": _log_plain("f64", 12)}


_WIDE = 8


class _Sequences:
    """What both directions read: log_probs (T, N, C), labels (N, S), lengths and sizes, all contiguous."""

    def __init__(self, kernel: Kernel, first: int, blank: int):
        call = kernel.call
        probs, labels = call.inputs[first], call.inputs[first + 1]
        self.kernel, self.c = kernel, STORAGE[name_of(probs.dtype)]
        steps, batch, classes = probs.shape
        self.batch, self.places = batch, 2 * labels.shape[1] + 1
        self.steps, self.count, self.classes = kernel.own_indices((steps, batch, classes))
        self.longest, self.row = kernel.own_indices((labels.shape[1], self.places))
        self.probs, self.labels = kernel.input(first), kernel.input(first + 1)
        self.lengths, self.sizes = kernel.input(first + 2), kernel.input(first + 3)
        self.blank = kernel.number(blank, "i64")
        self.group = 1 if call.device.serial else call.device.group
        self.barrier = "BARRIER;" if self.group > 1 else ""
        #: As in rows: processors' drivers call a function for each exp.
        self.exp = "exp_plain" if call.device.serial else "exp"

    def each(self, name: str, end: str, begin: str = "0") -> str:
        """The head of a loop that the items of a group share."""
        return f"for (idx {name} = {begin} + LANE(0); {name} < {end}; {name} += {self.group})"

    def head(self) -> str:
        """Names of the sequence ``n``; returns from the kernel, all items at once, where its numbers do not fit."""
        k, at = self.kernel, f"(n * {self.longest} + s / 2)"
        return f"""  const idx n = GROUP(0);
  const {self.c} none = {k.number(-float("inf"), self.c)};
  const i64 length = {self.lengths.load("n", "i64")}, size = {self.sizes.load("n", "i64")};
  if (length < 0 || length > {self.steps}) {{ {k.fault("index", "length")} return; }}
  if (size < 0 || size > {self.longest}) {{ {k.fault("index", "size")} return; }}
  for (idx s = 1; s < 2 * size; s += 2) {{
    const i64 label = {self.labels.load(at, "i64")};
    if (label < 0 || label >= {self.classes}) {{ {k.fault("index", "label")} return; }}
  }}
  const idx used = (idx)(2 * size + 1), last = (idx)length - 1;"""

    def noted(self, offset: int, dtype: str) -> tuple[Any, Any, str]:
        """Of every place its label, and what a way from two places before it adds: 0, or minus infinity where there is
        none. In the workspace from ``offset`` on; and the loop that writes both down."""
        at = self.kernel.workspace(offset, "int64")
        hop = self.kernel.workspace(offset + 8 * self.batch * self.places, dtype)
        keep = at.store(f"n * {self.row} + s", self.label("s"), "i64")
        leap = hop.store(f"n * {self.row} + s", f"{self.skips('s')} ? 0 : none", self.c)
        return at, hop, f"for (idx s = 0; s < used; ++s) {{ {keep} {leap} }}"

    def blocks(self, load: str, compute: str, store: str, arrays: tuple[str, ...]) -> str:
        """Eight places at a time, of which the last ones may be the same: loops of a fixed count become vectors."""
        names = ", ".join(f"{name}[{_WIDE}]" for name in arrays)
        return f"""for (idx from = 0; from < used; from += {_WIDE}) {{
      {self.c} {names};
      const idx most = used - from < {_WIDE} ? used - from : {_WIDE};
      for (idx j = 0; j < {_WIDE}; ++j) {{ const idx s = from + (j < most ? j : most - 1); {load} }}
      for (idx j = 0; j < {_WIDE}; ++j) {{ {compute} }}
      for (idx j = 0; j < most; ++j) {{ const idx s = from + j; {store} }}
    }}"""

    def label(self, s: str) -> str:
        """Of a place: blanks stand at even ones."""
        at = f"n * {self.longest} + ({s}) / 2"
        return f"((({s}) & 1) ? (idx){self.labels.load(at, 'i64')} : (idx){self.blank})"

    def skips(self, s: str) -> str:
        """Whether a way may come from two places before."""
        return f"((({s}) & 1) && ({s}) > 1 && {self.label(s)} != {self.label(f'({s}) - 2')})"

    def log_prob(self, label: str) -> str:
        """Of a class at step ``t``."""
        return self.probs.load(f"(t * {self.count} + n) * {self.classes} + {label}", self.c)

    def launch(self, body: str) -> Any:
        """A group for every sequence."""
        plain = self.exp == "exp_plain"
        helpers = EXP_PLAIN[self.c] + _LOG_PLAIN[self.c] if plain else ""
        helpers += _HELPERS.format(c=self.c, exp=self.exp, log="log_plain" if plain else "log")
        return self.kernel.launch(body, (self.batch,), (self.group,), helpers)


@template("ctc_loss")
def ctc_loss(call: Call) -> Any:
    """Outputs loss (N) and log probabilities of all beginnings (N, T, 2 S + 1); ``params`` blank."""
    if name_of(call.outputs[0].dtype) not in ("float32", "float64"):
        return NotImplemented
    kernel = Kernel(call, "ctc_loss")
    loss, alphas = kernel.output(0), kernel.output(1)
    q = _Sequences(kernel, 0, call.params[0])
    c, place = q.c, f"(n * {q.steps} + t) * {q.row}"
    before = f"(n * {q.steps} + t - 1) * {q.row}"
    dtype, note, space = name_of(call.outputs[0].dtype), "", 0
    step = f"""{q.each("s", "used")} {{
      const {c} one = s > 0 ? {alphas.load(f"{before} + s - 1", c)} : none;
      const {c} two = {q.skips("s")} ? {alphas.load(f"{before} + s - 2", c)} : none;
      const {c} sum = log_sum({alphas.load(f"{before} + s", c)}, one, two, none);
      {alphas.store(f"{place} + s", f"sum + {q.log_prob(q.label('s'))}", c)}
    }}"""
    if q.group == 1:
        at, hop, note = q.noted(0, dtype)
        space = (8 + ITEMSIZE[dtype]) * q.batch * q.places
        step = q.blocks(
            f"""stay[j] = {alphas.load(f"{before} + s", c)};
        from_one[j] = s > 0 ? {alphas.load(f"{before} + s - 1", c)} : none;
        from_two[j] = s > 1 ? {alphas.load(f"{before} + s - 2", c)} + {hop.load(f"n * {q.row} + s", c)} : none;
        prob[j] = {q.log_prob(f"(idx){at.load(f'n * {q.row} + s', 'i64')}")};""",
            "stay[j] = log_sum(stay[j], from_one[j], from_two[j], none) + prob[j];",
            alphas.store(f"{place} + s", "stay[j]", c),
            ("stay", "from_one", "from_two", "prob"),
        )
    return LaunchPlan(
        [
            q.launch(f"""{q.head()}
  for (idx t = 0; t < {q.steps}; ++t)
    {q.each("s", q.row)} {{ {alphas.store(f"{place} + s", "none", c)} }}
  if (length == 0) {{
    if (LANE(0) == 0) {{ {loss.store("n", "size == 0 ? 0 : -none", c)} }}
    return;
  }}
  {note}
  {q.barrier}
  {{
    const idx t = 0;
    {q.each("s", "(used < 2 ? used : 2)")} {{ {alphas.store(f"{place} + s", q.log_prob(q.label("s")), c)} }}
  }}
  for (idx t = 1; t <= last; ++t) {{
    {q.barrier}
    {step}
  }}
  {q.barrier}
  if (LANE(0) == 0) {{
    const idx t = last;
    const {c} before_last = used > 1 ? {alphas.load(f"{place} + used - 2", c)} : none;
    {loss.store("n", f"-log_sum({alphas.load(f'{place} + used - 1', c)}, before_last, none, none)", c)}
  }}""")
        ],
        space,
    )


@template("ctc_loss_backward")
def ctc_loss_backward(call: Call) -> Any:
    """Output (T, N, C) of inputs grad, log_probs, labels, lengths, sizes, loss, alphas; ``params`` blank,
    zero_infinity: ``exp(log_probs)`` minus the share of each class in all ways, times the gradient of the loss."""
    if name_of(call.outputs[0].dtype) not in ("float32", "float64"):
        return NotImplemented
    kernel = Kernel(call, "ctc_loss_backward")
    out, grads, losses, alphas = kernel.output(0), kernel.input(0), kernel.input(5), kernel.input(6)
    q = _Sequences(kernel, 1, call.params[0])
    c, dtype = q.c, name_of(call.outputs[0].dtype)
    rows = q.batch * q.places * ITEMSIZE[dtype]  # of all ways from a place on, at this step and the one before
    rows += -rows % 16
    now, ahead, shares = (kernel.workspace(k * rows, dtype) for k in range(3))
    lost = "0" if call.params[1] else "none - none"
    to, own = f"(t * {q.count} + n) * {q.classes}", f"n * {q.row}"
    add = f"""{q.each("s", "used")} {{
      const {c} share = {shares.load(f"{own} + s", c)};
      const idx at = {to} + {q.label("s")};
      {out.store("at", f"{out.load('at', c)} - grad * share", c)}
    }}"""
    if q.group > 1:  # places of one label are added up by the first of them, in their order
        add = f"""{q.each("s", "used")} {{
      const idx mine = {q.label("s")};
      {c} sum = 0;
      i32 first = 1;
      for (idx other = 0; other < used; ++other)
        if ({q.label("other")} == mine) {{
          if (other < s) {{ first = 0; break; }}
          sum += {shares.load(f"{own} + other", c)};
        }}
      if (first) {{ {out.store(f"{to} + mine", f"grad * ({q.exp}({q.log_prob('mine')}) - sum)", c)} }}
    }}"""
    walk = f"""{q.each("s", "used")} {{
      {c} rest = s + 2 >= used ? 0 : none;
      if (t < last) {{
        const {c} one = s + 1 < used ? {ahead.load(f"{own} + s + 1", c)} : none;
        const {c} two = s + 2 < used && {q.skips("s + 2")} ? {ahead.load(f"{own} + s + 2", c)} : none;
        rest = log_sum({ahead.load(f"{own} + s", c)}, one, two, none);
      }}
      {now.store(f"{own} + s", f"rest + {q.log_prob(q.label('s'))}", c)}
      const {c} way = {alphas.load(f"(n * {q.steps} + t) * {q.row} + s", c)} + rest + loss;
      {shares.store(f"{own} + s", f"way > none ? {q.exp}(way) : 0", c)}
    }}"""
    note, space = "", 3 * rows
    if q.group == 1:
        at, hop, note = q.noted(3 * rows, dtype)
        space += (8 + ITEMSIZE[dtype]) * q.batch * q.places
        two = f"{ahead.load(f'{own} + s + 2', c)} + {hop.load(f'{own} + s + 2', c)}"
        walk = q.blocks(
            f"""stay[j] = t < last ? {ahead.load(f"{own} + s", c)} : (s + 2 >= used ? 0 : none);
        from_one[j] = t < last && s + 1 < used ? {ahead.load(f"{own} + s + 1", c)} : none;
        from_two[j] = t < last && s + 2 < used ? {two} : none;
        prob[j] = {q.log_prob(f"(idx){at.load(f'{own} + s', 'i64')}")};
        way[j] = {alphas.load(f"(n * {q.steps} + t) * {q.row} + s", c)} + loss;""",
            f"""stay[j] = log_sum(stay[j], from_one[j], from_two[j], none); way[j] += stay[j]; prob[j] += stay[j];
        from_one[j] = {q.exp}(way[j]); way[j] = way[j] > none ? from_one[j] : 0;""",
            f"{now.store(f'{own} + s', 'prob[j]', c)} {shares.store(f'{own} + s', 'way[j]', c)}",
            ("stay", "from_one", "from_two", "prob", "way"),
        )
    return LaunchPlan(
        [
            q.launch(f"""{q.head()}
  const {c} grad = {grads.load("n", c)}, loss = {losses.load("n", c)};
  for (idx t = (idx)length; t < {q.steps}; ++t)
    {q.each("k", q.classes)} {{ {out.store(f"{to} + k", "0", c)} }}
  if (loss == -none) {{
    for (idx t = 0; t < (idx)length; ++t)
      {q.each("k", q.classes)} {{ {out.store(f"{to} + k", lost, c)} }}
    return;
  }}
  {note}
  for (idx t = last; t >= 0; --t) {{
    {q.each("k", q.classes)} {{ {out.store(f"{to} + k", f"grad * {q.exp}({q.log_prob('k')})", c)} }}
    {walk}
    {q.barrier}
    {add}
    {q.each("s", "used")} {{ {ahead.store(f"{own} + s", now.load(f"{own} + s", c), c)} }}
    {q.barrier}
  }}""")
        ],
        space,
    )
