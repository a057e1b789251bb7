"""Random bits and numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""

from __future__ import annotations

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dtypes import ITEMSIZE
from tesserack_kernelgen.kernel import Kernel

__all__ = ["PHILOX", "rand_fill", "random_bits"]

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
    """``out[i]`` = word ``params[1] + i`` of the stream with key ``params[0]``; an item makes a block of four."""
    out = call.outputs[0]
    kernel = Kernel(call, "random_bits")
    target = kernel.output(0)
    words = out.numel * ITEMSIZE[target.dtype] // 4
    group = 16 if call.device.serial else call.device.group
    blocks = words // 4 + 2  # as many for every offset
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
