"""Attention by blocks, without the matrix of scores, and its gradients (Dao et al., arXiv:2205.14135)."""

from __future__ import annotations

import math
from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, accumulator, name_of
from tesserack_kernelgen.emit import constant
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import coordinates, offset_text
from tesserack_kernelgen.templates._attend import Attend, choose
from tesserack_kernelgen.templates._registry import template

__all__ = ["attention", "attention_backward"]

_DEEPEST = 256  # sizes of a head, which are written into the text
_DTYPE = {"f32": "float32", "f64": "float64"}


class _Batches:
    """Which batch a group works on: coordinates, and the base of each operand."""

    def __init__(self, kernel: Kernel, sizes: tuple[int, ...], number: str):
        self.kernel, self.names = kernel, [f"batch{d}" for d in range(len(sizes))]
        self.text = coordinates(number, kernel.indices(sizes), self.names)

    def base(self, name: str, x: Any, inner: int = 2) -> str:
        """A declaration of the offset of the batch in an operand, whose last dims are not of the batch."""
        strides = self.kernel.indices(x.strides[: x.ndim - inner])
        return f"const idx {name} = {offset_text(self.names, strides)};"


def _by(kernel: Kernel, x: Any) -> list[str]:
    return kernel.indices(x.strides[-2:])


def _masked(a: Attend, mask: Any, tensor: Tensor | None, causal: bool, query: str, key: str, limits: str) -> str:
    """Statements that add the mask to the score ``s``, which is minus infinity where nothing is seen."""
    lowest, lines = constant(-math.inf, a.c), []
    if tensor:
        row, column = _by(a.kernel, mask)
        at = f"bm + ({query}) * {row} + ({key}) * {column}"
        seen = (
            f"if (!{tensor.load(at, 'i32')}) s = {lowest};"
            if tensor.dtype == "bool"
            else f"s += {tensor.load(at, a.c)};"
        )
        lines.append(f"if ({limits}) {{ {seen} }}")
    lines.append(f"if (!({limits}){f' || {key} > {query}' if causal else ''}) s = {lowest};")
    return " ".join(lines)


def _mask(kernel: Kernel, number: int) -> tuple[Any, Tensor | None]:
    mask = kernel.call.inputs[number]
    return (mask, kernel.input(number)) if hasattr(mask, "strides") else (None, None)


@template("attention_blocks")
def attention(call: Call) -> LaunchPlan | Any:
    """Outputs y and logsumexp of inputs q, k, v, mask; ``params`` are is_causal and scale."""
    (out, lse), (q, k, v), (causal, scale) = call.outputs, call.inputs[:3], call.params
    depth, width = int(q.shape[-1]), int(v.shape[-1])
    c = accumulator(name_of(q.dtype))

    def count(rows: int, tile: int, lanes: int) -> int:
        pad = lanes if call.device.serial else 1
        return rows * (depth + width + tile + 2 * pad + 3) + tile * (depth + width + 2 * pad)

    found = choose(call.device, c, q.shape[-2], count)
    if max(depth, width) > _DEEPEST or not found:
        return NotImplemented
    kernel = Kernel(call, "attention")
    a = Attend(kernel, c, *found)
    result, sums, query, key, value = kernel.output(0), kernel.output(1), *(kernel.input(n) for n in range(3))
    mask, given = _mask(kernel, 3)
    length, keys = kernel.own_index(q.shape[-2]), kernel.own_index(k.shape[-2])
    blocks = -(-q.shape[-2] // a.rows)
    batches = _Batches(kernel, q.shape[:-2], "batch")
    least, far = constant(-math.inf, c), constant(math.inf, c)
    # Scores of keys pass through an array that the values use afterwards, where a group has little memory.
    tiles = a.array("kt" if a.serial else "kk", a.tile * a.leading(depth)) if a.serial else ""
    tiles += a.array("vv", a.tile * a.leading(width) if a.serial else a.tile * max(a.leading(depth), a.leading(width)))
    keys_name = "kt" if a.serial else "vv"
    weights = _softmax_row(a, least)
    body = f"""
  {a.place}
  {a.array("qq", a.rows * a.leading(depth))} {tiles} {a.array("scores", a.rows * a.tile)}
  {a.array("top", a.rows)} {a.array("total", a.rows)} {a.array("shrink", a.rows)}
  const idx block = (idx)GROUP(0) % {kernel.own_index(blocks)}, batch = (idx)GROUP(0) / {kernel.own_index(blocks)};
  {batches.text}
  {batches.base("bq", q)} {batches.base("bk", k)} {batches.base("bv", v)} {batches.base("bo", out)}
  {batches.base("bl", lse, 1)} {batches.base("bm", mask) if given else ""}
  const idx q0 = block * {a.rows};
  const idx seen = {f"q0 + {a.rows} < {keys} ? q0 + {a.rows} : {keys}" if causal else keys};
  {a.sums("sums", width)}
  {a.fetch(["qq"], query, "bq", "q0", length, a.rows, depth, _by(kernel, q))}
  {a.each_row(a.rows, f"top[r] = {least}; total[r] = 0;")}
  for (idx k0 = 0; k0 < seen; k0 += {a.tile}) {{
    {a.barrier}
    {a.fetch([keys_name], key, "bk", "k0", keys, a.tile, depth, _by(kernel, k))}
    {a.barrier}
    {a.dot("scores", "qq", keys_name, depth)}
    {a.barrier}
    {
        a.each(
            a.rows,
            a.tile,
            f'''{c} s = scores[r * {a.tile} + e] * {kernel.number(scale, c)};
      {_masked(a, mask, given, causal, "(q0 + r)", "(k0 + e)", f"q0 + r < {length} && k0 + e < {keys}")}
      scores[r * {a.tile} + e] = s;''',
        )
    }
    {a.barrier}
    {a.each_row(a.rows, weights)}
    {a.fetch(["vv"], value, "bv", "k0", keys, a.tile, width, _by(kernel, v))}
    {a.barrier}
    {a.add("sums", "scores", "vv", width, "shrink")}
  }}
  {a.barrier}
  {a.store(result, "bo", "q0", length, "sums", width, _by(kernel, out), "total[r] > 0 ? x / total[r] : total[r]")}
  {
        a.each_row(
            a.rows,
            f'''if (q0 + r < {length}) {{
      const {c} x = total[r] == 0 ? {far} : top[r] + log(total[r]);
      {sums.store(f"bl + (q0 + r) * {kernel.index(lse.strides[-1])}", "x", c)}
    }}''',
        )
    }"""
    many = blocks * math.prod(q.shape[:-2])
    return LaunchPlan([kernel.launch(body, (many,), (a.group,))])


def _softmax_row(a: Attend, least: str) -> str:
    """Statements for the row ``r``: its scores become weights, and what was summed before shrinks."""
    c, row = a.c, f"scores[r * {a.tile} + j]"
    powers = f"for (i32 j = 0; j < {a.tile}; ++j) {{ const {c} w = exp({row} - m); {row} = w; more += w; }}"
    if a.functions:
        v, at = a.vector, f"*(LOCAL {a.vector}*)(scores + r * {a.tile} + j)"
        powers = f"""for (i32 j = 0; j < {a.tile}; j += {a.lanes}) {at} = exp({at} - ({v})(m));
      for (i32 j = 0; j < {a.tile}; ++j) more += {row};"""
    return f"""{c} m = top[r], more = 0;
    for (i32 j = 0; j < {a.tile}; ++j) if ({row} > m || {row} != {row}) m = {row};
    if (m == {least}) {{
      shrink[r] = 1;
      for (i32 j = 0; j < {a.tile}; ++j) {row} = 0;
    }} else {{
      {powers}
      shrink[r] = exp(top[r] - m);
      total[r] = total[r] * shrink[r] + more;
      top[r] = m;
    }}"""


@template("attention_blocks_backward")
def attention_backward(call: Call) -> LaunchPlan | Any:
    """Outputs dq, dk, dv of inputs grad, q, k, v, mask, y, logsumexp; ``params`` are is_causal and scale.

    One launch goes over blocks of queries, and leaves the products of grad and y for another over blocks of keys.
    """
    _, q, k, v = call.inputs[:4]
    c = accumulator(name_of(q.dtype))
    depth, width = int(q.shape[-1]), int(v.shape[-1])

    def count(rows: int, tile: int, lanes: int) -> int:
        pad, copies = (lanes, 2) if call.device.serial else (1, 1)
        held = 2 if call.device.serial else 1
        return (held * rows + copies * tile) * (depth + width + 2 * pad) + 2 * rows * tile + 2 * (rows + tile)

    found = choose(call.device, c, max(q.shape[-2], k.shape[-2]), count)
    if max(depth, width) > _DEEPEST or not found:
        return NotImplemented
    products = math.prod(q.shape[:-1]) * ITEMSIZE[_DTYPE[c]]
    return LaunchPlan([_gradients(call, c, found, keys) for keys in (False, True)], -(-products // 16) * 16)


def _gradients(call: Call, c: str, found: tuple[int, int], by_keys: bool) -> Launch:
    """dq by blocks of queries, against tiles of keys; or dk and dv by blocks of keys, against tiles of queries."""
    grad, q, k, v, _, y, lse = call.inputs[:7]
    causal, scale = call.params
    kernel = Kernel(call, "attention_dkv" if by_keys else "attention_dq")
    a = Attend(kernel, c, *found)
    depth, width = q.shape[-1], v.shape[-1]
    mask, given = _mask(kernel, 4)
    products = kernel.workspace(0, _DTYPE[c])
    tensors = {name: kernel.input(n) for name, n in (("g", 0), ("q", 1), ("k", 2), ("v", 3), ("l", 6))}
    shapes = {"g": grad, "q": q, "k": k, "v": v}
    length, keys = kernel.own_index(q.shape[-2]), kernel.own_index(k.shape[-2])
    held, passing = (("k", "v"), ("q", "g")) if by_keys else (("q", "g"), ("k", "v"))
    limits = {"q": length, "g": length, "k": keys, "v": keys}
    blocks = -(-(k if by_keys else q).shape[-2] // a.rows)
    batches = _Batches(kernel, q.shape[:-2], "batch")
    depths = {"q": depth, "k": depth, "g": width, "v": width}
    suffix = ("t",) if a.serial else ("",)
    tiles, arrays = {}, []
    for name in passing:
        rows_too = name == passing[0] or by_keys  # what is summed over needs its rows as well
        tiles[name] = [f"t{name}{suffix[0]}", *([f"t{name}"] if a.serial and rows_too else [])]
        arrays += [a.array(x, a.tile * a.leading(depths[name])) for x in tiles[name]]
    arrays += [a.array(f"h{name}", a.rows * a.leading(depths[name])) for name in held]
    arrays += [a.array(name, a.rows * a.tile) for name in ("scores", "slopes")]
    many = a.tile if by_keys else a.rows
    arrays += [a.array(name, many) for name in ("level", "centre")]
    first, at = ("p0", "r0") if by_keys else ("r0", "p0")  # of queries, of keys

    def fetch(name: str, names: list[str], start: str, rows: int) -> str:
        by = _by(kernel, shapes[name])
        return a.fetch(names, tensors[name], f"b{name}", start, limits[name], rows, depths[name], by)

    number = f"batch * {length} + {first} + r"
    level = tensors["l"].load(f"bl + ({first} + r) * {kernel.index(lse.strides[-1])}", c)
    if by_keys:
        centre = products.load(number, c)
    else:
        row = f"bg + ({first} + r) * {_by(kernel, grad)[0]} + e * {_by(kernel, grad)[1]}"
        same = f"by + ({first} + r) * {_by(kernel, y)[0]} + e * {_by(kernel, y)[1]}"
        output = kernel.input(5)
        centre = ""
    statistics = f"const i32 inside = {first} + r < {length}; level[r] = inside ? {level} : {constant(math.inf, c)};"
    if by_keys:
        statistics += f" centre[r] = inside ? {centre} : 0;"
    else:
        statistics += f""" {c} x = 0;
    if (inside) {{
      for (i32 e = 0; e < {width}; ++e) x = fma({tensors["g"].load(row, c)}, {output.load(same, c)}, x);
      {products.store(number, "x", c)}
    }}
    centre[r] = x;"""
    query, key = (f"({first} + {'e' if by_keys else 'r'})", f"({at} + {'r' if by_keys else 'e'})")

    def slope(kind: str, j: str) -> str:
        index = j if by_keys else "r"
        vectors = by_keys and kind != a.c
        lower = a.at("level", index, kind if vectors else a.c)
        middle = a.at("centre", index, kind if vectors else a.c)
        if kind != a.c and not vectors:
            lower, middle = f"({kind})({lower})", f"({kind})({middle})"
        factor = f"({kind})({kernel.number(scale, c)})" if kind != a.c else kernel.number(scale, c)
        weights, slopes = a.at("scores", "at", kind), a.at("slopes", "at", kind)
        moved = f"{slopes} = w * ({slopes} - {middle}) * {factor};"
        return f"const {kind} w = exp({weights} - {lower}); {weights} = w; {moved}"

    sums = [a.sums("first", depth)] + ([a.sums("second", width)] if by_keys else [])
    outputs = [(1, "first", depth), (2, "second", width)] if by_keys else [(0, "first", depth)]
    bases = [batches.base(f"d{n}", call.outputs[n]) for n, _, _ in outputs]
    stores = [
        a.store(
            kernel.output(n), f"d{n}", "r0", keys if by_keys else length, name, size, _by(kernel, call.outputs[n]), "x"
        )
        for n, name, size in outputs
    ]
    end = length if by_keys else f"r0 + {a.rows} < {keys} ? r0 + {a.rows} : {keys}" if causal else keys
    start = "r0" if by_keys and causal else "0"
    line = "\n    "
    body = f"""
  {a.place}
  {line.join(arrays)}
  const idx block = (idx)GROUP(0) % {kernel.own_index(blocks)}, batch = (idx)GROUP(0) / {kernel.own_index(blocks)};
  {batches.text}
  {" ".join(batches.base(f"b{name}", x) for name, x in shapes.items())} {batches.base("bl", lse, 1)}
  {batches.base("bm", mask) if given else ""} {"" if by_keys else batches.base("by", y)} {" ".join(bases)}
  const idx r0 = block * {a.rows}, end = {end};
  {line.join(sums)}
  {fetch(held[0], [f"h{held[0]}"], "r0", a.rows)}
  {fetch(held[1], [f"h{held[1]}"], "r0", a.rows)}
  {"" if by_keys else f"{{ {a.each_row(many, statistics.replace(first, 'r0'))} }}"}
  for (idx p0 = {start}; p0 < end; p0 += {a.tile}) {{
    {a.barrier}
    {fetch(passing[0], tiles[passing[0]], "p0", a.tile)}
    {fetch(passing[1], tiles[passing[1]], "p0", a.tile)}
    {a.each_row(many, statistics) if by_keys else ""}
    {a.barrier}
    {a.dot("scores", f"h{held[0]}", tiles[passing[0]][0], depth)}
    {a.dot("slopes", f"h{held[1]}", tiles[passing[1]][0], width)}
    {a.barrier}
    {
        a.each(
            a.rows,
            a.tile,
            f'''{c} s = scores[r * {a.tile} + e] * {kernel.number(scale, c)};
      {_masked(a, mask, given, causal, query, key, f"{query} < {length} && {key} < {keys}")}
      scores[r * {a.tile} + e] = s;''',
        )
    }
    {a.barrier}
    {a.scores(slope)}
    {a.barrier}
    {a.add("first", "slopes", tiles[passing[0]][-1], depth)}
    {a.add("second", "scores", tiles[passing[1]][-1], width) if by_keys else ""}
  }}
  {line.join(stores)}"""
    return kernel.launch(body, (blocks * math.prod(q.shape[:-2]),), (a.group,))
