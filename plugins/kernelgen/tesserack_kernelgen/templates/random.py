"""Random bits and numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""

from __future__ import annotations

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, accumulator
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates, merge, offset_text

__all__ = ["PHILOX", "dropout", "rand_fill", "randn_fill", "random_bits"]

PHILOX = """
DEVICE void philox(u64 key, u64 counter, u32* word) {
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
  u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = 0, c3 = 0;
  for (i32 round = 0; round < 10; ++round) {
    const u32 high0 = MULHI32(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const u32 high1 = MULHI32(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0; c1 = low1; c2 = high0 ^ c3 ^ k1; c3 = low0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  word[0] = c0; word[1] = c1; word[2] = c2; word[3] = c3;
}"""


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
    body = f"""
  const idx t = (idx)GROUP(0) * {group} + LANE(0);
  u32 word[4];
  philox({key}, {offset} / 4 + (u64)t, word);
  const i64 first = (i64)t * 4 - (i64)({offset} % 4);
  for (i32 j = 0; j < 4; ++j)
    if (first + j >= 0 && first + j < (i64){kernel.index(words)})
      ((GLOBAL u32*)({target.pointer}))[first + j] = word[j];"""
    return LaunchPlan([kernel.launch(body, (-(-blocks // group),), (group,), PHILOX)])


#: Of a word, how many bits make a uniform number of each dtype.
_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


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
    key, offset, count = kernel.param(0, "u64"), kernel.param(1, "u64"), kernel.index(x.numel)
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


def dropout(call: Call) -> LaunchPlan:
    """Outputs y and mask of ``in0``: an element is dropped where its uniform number lies below ``params[0]``.

    An item makes a block of four words, for the elements in row-major order whose numbers stand in it.
    """
    (out, mask), (x,), (p, _, _) = call.outputs, call.inputs, call.params
    kernel = Kernel(call, "dropout")
    result, kept, given = kernel.output(0), kernel.output(1), kernel.input(0)
    c = accumulator(given.dtype)
    sizes, strides = merge(x.shape, out.strides, mask.strides, x.strides)
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
