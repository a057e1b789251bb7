"""Random bits and numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, STORAGE, accumulator, name_of
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import coordinates, merge, offset_text
from tesserack_kernelgen.templates._draws import LANES, PHILOX, draw_by_vectors, has_draws, interleaved
from tesserack_kernelgen.templates._registry import template
from tesserack_kernelgen.vectors import instruction

__all__ = ["check_weights", "dropout", "rand_fill", "randint_fill", "randn_fill", "random_bits"]


@template("random_bits", takes=("device_random",))
def random_bits(call: Call) -> LaunchPlan:
    """``out[i]`` = word ``params[1] + i`` of the stream with key ``params[0]``; an item makes a block of four.

    With an input, that holds the key and a number which ``params[1]`` is counted from: recorded launches read new ones.
    """
    out = call.outputs[0]
    kernel = Kernel(call, "random_bits")
    target = kernel.output(0)
    words = out.numel * ITEMSIZE[target.dtype] // 4
    group = 16 if call.device.serial else call.device.group
    blocks = words // 4 + 2  # as many for every offset
    if call.inputs:
        state = f"((GLOBAL const u64*)({kernel.input(0).pointer}))"
        key, offset = f"{state}[0]", f"({state}[1] + {kernel.param(1, 'u64')})"
    else:
        key, offset = kernel.param(0, "u64"), kernel.param(1, "u64")
    if has_draws(call):
        into = f"((GLOBAL u32*)({target.pointer}))"
        parts = _parts("c0", "c1", "c2", "c3")
        whole = [f"*(GLOBAL any_words*)({into} + first + {at}) = {part};" for at, part in parts]
        one = f"{into}[n] = w[0];"
        return LaunchPlan([draw_by_vectors(kernel, key, offset, words, each=1, whole=" ".join(whole), one=one)])
    body = f"""
  const idx t = (idx)GROUP(0) * {group} + LANE(0);
  u32 word[4];
  philox({key}, {offset} / 4 + (u64)t, word);
  const i64 first = (i64)t * 4 - (i64)({offset} % 4);
  for (i32 j = 0; j < 4; ++j)
    if (first + j >= 0 && first + j < (i64){kernel.index(words)})
      ((GLOBAL u32*)({target.pointer}))[first + j] = word[j];"""
    return LaunchPlan([kernel.launch(body, (-(-blocks // group),), (group,), PHILOX)])


def _parts(*vectors: str) -> list[tuple[int, str]]:
    """The words of vectors in turn: expressions of vectors, and how many elements come before each."""
    return [(k * LANES, part) for k, part in enumerate(interleaved(*vectors))]


def _uniform(words: str, bits: int) -> str:
    """Words as numbers in [0, 1), by their top bits."""
    return f"TO_V(AS_VI({words} >> {32 - bits})) * {2.0**-bits!r}f"


def _uniform64(low: str, high: str) -> str:
    words = f"convert_ulong{LANES}({low}) | convert_ulong{LANES}({high}) << 32"
    return f"convert_double{LANES}(({words}) >> 11) * {2.0**-53!r}"


def _store64(target: Tensor, at: int, value: str) -> str:
    return f"*(GLOBAL any_float64*)((GLOBAL f64*)({target.pointer}) + first + {at}) = {value};"


#: Of a word, how many bits make a uniform number of each dtype.
_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


@template("rand_fill")
def rand_fill(call: Call) -> LaunchPlan:
    """Uniform numbers in [0, 1) into the contiguous ``in0``: the top bits of its words, exactly."""
    x = call.inputs[0]
    kernel = Kernel(call, "rand_fill")
    target = kernel.input(0)
    wide = target.dtype == "float64"
    c = "f64" if wide else "f32"
    bits = _BITS[target.dtype]
    group = 16 if call.device.serial else call.device.group
    words = x.numel * (2 if wide else 1)
    blocks = words // 4 + 2
    key, offset = kernel.param(0, "u64"), kernel.param(1, "u64")
    if has_draws(call):
        return LaunchPlan([_rand_vectors(kernel, target, key, offset)])
    count = kernel.index(x.numel)
    if wide:  # its two words may stand in two blocks
        blocks = x.numel
        body = f"""
  if (t >= {count}) return;
  u32 word[8];
  const u64 start = {offset} + 2 * (u64)t;
  philox({key}, start / 4, word);
  philox({key}, start / 4 + 1, word + 4);
  const u64 drawn = (u64)word[start % 4] | (u64)word[start % 4 + 1] << 32;
  {target.store("t", f"(f64)(drawn >> 11) * {2.0**-53!r}", c)}"""
    else:
        body = f"""
  u32 word[4];
  philox({key}, {offset} / 4 + (u64)t, word);
  const i64 first = (i64)t * 4 - (i64)({offset} % 4);
  for (i32 j = 0; j < 4; ++j)
    if (first + j >= 0 && first + j < (i64){count}) {{
      {target.store("(idx)(first + j)", f"(f32)(word[j] >> {32 - bits}) * {2.0**-bits!r}f", c)}
    }}"""
    begin = f"\n  const idx t = (idx)GROUP(0) * {group} + LANE(0);"
    return LaunchPlan([kernel.launch(begin + body, (-(-blocks // group),), (group,), PHILOX)])


#: Dtypes of integers that are drawn by a kernel, as processors draw them.
_DRAWN = ("int64", "int32", "uint8")


@template("randint_fill")
def randint_fill(call: Call) -> LaunchPlan | Any:
    """Integers into the contiguous ``in0``: a word modulo ``params[2]``, the number of values, and ``params[3]`` added.

    Declined for other dtypes, and for more values than a word has.
    """
    x, span, low = call.inputs[0], call.params[2], call.params[3]
    if name_of(x.dtype) not in _DRAWN or not 0 < span <= 1 << 32:
        return NotImplemented
    kernel = Kernel(call, "randint_fill")
    target = kernel.input(0)
    key, offset = kernel.param(0, "u64"), kernel.param(1, "u64")
    values, least = kernel.number(span, "u64"), kernel.number(low, "i64")
    if has_draws(call):
        return LaunchPlan([_randint_vectors(kernel, target, key, offset, span, values, least)])
    group = 16 if call.device.serial else call.device.group
    blocks, count = x.numel // 4 + 2, kernel.index(x.numel)
    body = f"""
  const idx t = (idx)GROUP(0) * {group} + LANE(0);
  u32 word[4];
  philox({key}, {offset} / 4 + (u64)t, word);
  const i64 first = (i64)t * 4 - (i64)({offset} % 4);
  for (i32 j = 0; j < 4; ++j)
    if (first + j >= 0 && first + j < (i64){count}) {{
      {target.store("(idx)(first + j)", f"{least} + (i64)({_remainder('word[j]', span, values)})", "i64")}
    }}"""
    return LaunchPlan([kernel.launch(body, (-(-blocks // group),), (group,), PHILOX)])


def _remainder(word: str, span: int, values: str) -> str:
    return word if span >> 32 else f"{word} % (u32){values}"


def _randint_vectors(
    kernel: Kernel, target: Tensor, key: str, offset: str, span: int, values: str, least: str
) -> Launch:
    """The quotient is by a factor, 2^(32 + shift) / span rounded down, and too little by one at most."""
    half, storage = LANES // 2, {"int64": "long", "int32": "int", "uint8": "uchar"}[target.dtype]
    into = f"(GLOBAL {STORAGE[target.dtype]}*)({target.pointer}) + first"
    if span & (span - 1):
        shift = span.bit_length() - 1
        factor, right = kernel.number((1 << 32 + shift) // span, "u64"), kernel.number(32 + shift, "u64")
        rest = f"PARTS whole = word - ((word * {factor}) >> {right}) * {values}; whole = min(whole, whole - {values});"
    else:
        rest = f"const PARTS whole = word & ({values} - 1);"
    whole = [f"typedef ulong{half} PARTS; typedef {storage}{half} any_{storage} ALIGNED({ITEMSIZE[target.dtype]});"]
    for at, part in _parts("c0", "c1", "c2", "c3"):
        for k, side in enumerate(("lo", "hi")):
            place = f"*(GLOBAL any_{storage}*)({into} + {at + k * half})"
            value = f"convert_{storage}{half}(as_long{half}(whole) + {least})"
            whole.append(f"{{ const PARTS word = convert_ulong{half}(({part}).{side}); {rest} {place} = {value}; }}")
    one = target.store("n", f"{least} + (i64)({_remainder('w[0]', span, values)})", "i64")
    return draw_by_vectors(
        kernel, key, offset, kernel.call.inputs[0].numel, each=1, whole="\n      ".join(whole), one=one
    )


def _rand_vectors(kernel: Kernel, target: Tensor, key: str, offset: str) -> Launch:
    if target.dtype == "float64":
        low, high = _parts("c0", "c2"), _parts("c1", "c3")
        whole = [_store64(target, at, _uniform64(a, b)) for (at, a), (_, b) in zip(low, high, strict=True)]
        one = target.store("n", f"(f64)(((u64)w[0] | (u64)w[1] << 32) >> 11) * {2.0**-53!r}", "f64")
    else:
        bits, into = _BITS[target.dtype], f"store_{target.dtype}({target.pointer}, first"
        parts = _parts("c0", "c1", "c2", "c3")
        whole = [f"{into} + {at}, 1, LANES, {_uniform(part, bits)});" for at, part in parts]
        one = target.store("n", f"(f32)(w[0] >> {32 - bits}) * {2.0**-bits!r}f", "f32")
    return draw_by_vectors(
        kernel,
        key,
        offset,
        kernel.call.inputs[0].numel,
        each=2 if target.dtype == "float64" else 1,
        whole=" ".join(whole),
        one=one,
        dtypes=((), (target.dtype,)),
    )


def _randn_vectors(kernel: Kernel, target: Tensor, key: str, offset: str) -> Launch:
    if target.dtype == "float64":
        u, v = _uniform64("c0", "c1"), _uniform64("c2", "c3")
        whole = [_store64(target, 0, f"sqrt(-2.0 * log(1.0 - {u})) * cos(6.283185307179586 * ({v}))")]
        words = [f"(f64)(((u64)w[{k}] | (u64)w[{k + 1}] << 32) >> 11) * {2.0**-53!r}" for k in (0, 2)]
        one = target.store("n", f"sqrt(-2.0 * log(1.0 - {words[0]})) * cos(6.283185307179586 * ({words[1]}))", "f64")
    else:
        radius, angle = _parts("c0", "c2"), _parts("c1", "c3")
        whole = []
        for (at, a), (_, b) in zip(radius, angle, strict=True):
            log = instruction("log", f"(1.0f - {_uniform(a, 24)})")
            cos = instruction("cos", f"(6.283185307179586f * ({_uniform(b, 24)}))")
            into = f"store_{target.dtype}({target.pointer}, first + {at}, 1, LANES"
            whole.append(f"{into}, sqrt(-2.0f * {log}) * {cos});")
        words = [f"(f32)(w[{k}] >> 8) * {2.0**-24!r}f" for k in (0, 1)]
        one = target.store("n", f"sqrt(-2.0f * log(1.0f - {words[0]})) * cos(6.283185307179586f * ({words[1]}))", "f32")
    return draw_by_vectors(
        kernel,
        key,
        offset,
        kernel.call.inputs[0].numel,
        each=4 if target.dtype == "float64" else 2,
        whole=" ".join(whole),
        one=one,
        program=SimpleNamespace(instructions=(("log", 0), ("cos", 0))),
        dtypes=((), (target.dtype,)),
    )


@template("randn_fill")
def randn_fill(call: Call) -> LaunchPlan:
    """Standard normal numbers into the contiguous ``in0``, each from two uniform ones (Box and Muller, 1958)."""
    x = call.inputs[0]
    kernel = Kernel(call, "randn_fill")
    target = kernel.input(0)
    wide = target.dtype == "float64"
    c, suffix = ("f64", "") if wide else ("f32", "f")
    each = 1 if wide else 2  # numbers of an item: what a block of four words makes
    group = 16 if call.device.serial else call.device.group
    items = -(-x.numel // each)
    key, offset = kernel.param(0, "u64"), kernel.param(1, "u64")
    if has_draws(call):
        return LaunchPlan([_randn_vectors(kernel, target, key, offset)])
    count = kernel.index(x.numel)
    if wide:
        words = ["(f64)(((u64)word[at] | (u64)word[at + 1] << 32) >> 11)"]
        words.append("(f64)(((u64)word[at + 2] | (u64)word[at + 3] << 32) >> 11)")
    else:
        words = ["(f32)(word[at] >> 8)", "(f32)(word[at + 1] >> 8)"]
    scale = f"{2.0**-53!r}" if wide else f"{2.0**-24!r}f"
    body = f"""
  const idx t = (idx)GROUP(0) * {group} + LANE(0);
  u32 word[8];
  const u64 start = {offset} + 4 * (u64)t;
  philox({key}, start / 4, word);
  if (start % 4) philox({key}, start / 4 + 1, word + 4);
  for (i32 j = 0; j < {each}; ++j) {{
    const idx place = t * {each} + j;
    const i32 at = (i32)(start % 4) + 2 * j;
    if (place < {count}) {{
      const {c} u = {words[0]} * {scale}, v = {words[1]} * {scale};
      {target.store("place", f"sqrt(-2.0{suffix} * log(1.0{suffix} - u)) * cos(6.283185307179586{suffix} * v)", c)}
    }}
  }}"""
    return LaunchPlan([kernel.launch(body, (-(-items // group),), (group,), PHILOX)])


@template("native_dropout")
def dropout(call: Call) -> LaunchPlan:
    """Outputs y and mask of ``in0``: an element is dropped where its uniform number lies below ``params[0]``.

    An item makes a block of four words, for the elements in row-major order whose numbers stand in it.
    """
    (out, mask), (x,), (p, _, _) = call.outputs, call.inputs, call.params
    kernel = Kernel(call, "dropout")
    result, kept, given = kernel.output(0), kernel.output(1), kernel.input(0)
    c = accumulator(given.dtype)
    sizes, strides = merge(x.shape, out.strides, mask.strides, x.strides)
    if has_draws(call) and c == "f32" and sizes and all(s == (1,) for s in strides):
        return LaunchPlan([_dropout_vectors(kernel, result, kept, given)])
    names = [f"c{k}" for k in range(len(sizes))]
    size_names = [kernel.own_index(size) for size in sizes]
    places = [offset_text(names, kernel.indices(steps)) for steps in strides]
    group = 16 if call.device.serial else call.device.group
    items = x.numel // 4 + 2
    key, offset, count = kernel.param(1, "u64"), kernel.param(2, "u64"), kernel.own_index(x.numel)
    bound, scale = kernel.number(p, "f32"), kernel.number(0 if p >= 1 else 1 / (1 - p), c)
    body = f"""
  const idx t = (idx)GROUP(0) * {group} + LANE(0);
  u32 word[4];
  philox({key}, {offset} / 4 + (u64)t, word);
  const idx first = 4 * t - (idx)({offset} % 4);
  for (i32 j = 0; j < 4; ++j) {{
    const idx number = first + j;
    if (number >= 0 && number < {count}) {{
      {coordinates("number", size_names, names)}
      const i32 keep = (f32)(word[j] >> 8) * {2.0**-24!r}f >= {bound};
      const {c} v = {given.load(places[2], c)};
      {kept.store(places[1], "keep", "i32")}
      {result.store(places[0], f"keep ? v * {scale} : 0", c)}
    }}
  }}"""
    return LaunchPlan([kernel.launch(body, (-(-items // group),), (group,), PHILOX)])


def _dropout_vectors(kernel: Kernel, result: Tensor, kept: Tensor, given: Tensor) -> Launch:
    """Of elements in order."""
    call = kernel.call
    p = call.params[0]
    bound, scale = kernel.number(p, "f32"), kernel.number(0 if p >= 1 else 1 / (1 - p), "f32")
    whole = []
    for at, part in _parts("c0", "c1", "c2", "c3"):
        place = f"first + {at}, 1, LANES"
        whole.append(f"""{{ const VI keep = {_uniform(part, 24)} >= (V)({bound});
        const V x = load_{given.dtype}({given.pointer}, {place});
        store_bool({kept.pointer}, {place}, keep ? (V)(1) : (V)(0));
        store_{result.dtype}({result.pointer}, {place}, keep ? x * {scale} : (V)(0)); }}""")
    one = f"""const i32 keep = (f32)(w[0] >> 8) * {2.0**-24!r}f >= {bound};
        const f32 v = {given.load("n", "f32")};
        {kept.store("n", "keep", "i32")}
        {result.store("n", f"keep ? v * {scale} : 0", "f32")}"""
    return draw_by_vectors(
        kernel,
        kernel.param(1, "u64"),
        kernel.param(2, "u64"),
        call.inputs[0].numel,
        each=1,
        whole="\n      ".join(whole),
        one=one,
        dtypes=((given.dtype,), (result.dtype, "bool")),
    )


@template("check_weights")
def check_weights(call: Call) -> LaunchPlan:
    """No output: a fault where a row of ``in0`` holds a weight that is negative or not finite, or none above zero."""
    (weights,) = call.inputs
    kernel = Kernel(call, "check_weights")
    kernel.site = "multinomial"
    rows, n = weights.shape
    group = 1 if call.device.serial else call.device.group
    given = kernel.input(0)
    c = accumulator(given.dtype)
    at = f"(idx)GROUP(0) * {kernel.own_index(n)} + r"
    found = "wrong | !any" if group == 1 else "state[0] | !state[1]"
    share = "LOCAL_ARRAY(i32, state, 2); if (LANE(0) < 2) state[LANE(0)] = 0; BARRIER;" if group > 1 else ""
    join = "if (wrong) state[0] = 1; if (any) state[1] = 1; BARRIER;" if group > 1 else ""
    body = f"""
  {share}
  i32 wrong = 0, any = 0;
  for (idx r = LANE(0); r < {kernel.own_index(n)}; r += {group}) {{
    const {c} w = {given.load(at, c)};
    wrong |= !(w >= 0 && w - w == 0);
    any |= w > 0;
  }}
  {join}
  if (LANE(0) == 0 && ({found})) {{ {kernel.fault("weights", "GROUP(0)")} }}"""
    return LaunchPlan([kernel.launch(body, (rows,), (group,))])
