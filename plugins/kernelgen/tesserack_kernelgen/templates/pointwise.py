"""Pointwise programs, copies with a cast, and filling: one loop over elements, however they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.chunks import CHUNK, launch_chunks
from tesserack_kernelgen.dtypes import ITEMSIZE, LOADED, REAL, name_of, register
from tesserack_kernelgen.emit import DIVISIONS, program_text
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import contiguous, coordinates, merge, uniform
from tesserack_kernelgen.templates._registry import template
from tesserack_kernelgen.templates._vectors import by_vectors
from tesserack_kernelgen.transpose import transposed

__all__ = ["Elementwise", "copy_cast", "fill", "iota", "pointwise"]

_Load = tuple[str, str, Callable[[list[str]], str]]  # C type, name, and the expression at some indices
_COPY = SimpleNamespace(constants=(), instructions=(), outputs=(0,))
_WITHIN_FLOAT32 = ("bool", "uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float32")
_REGISTERS = 32  # of a thread, for what it loads before it computes


@dataclass
class Elementwise:
    """A loop over elements of operands that all have the same sizes.

    ``strides`` has those of each operand; ``body`` gets an index into each, expressions of type ``idx``, and gives the
    statements for one element. ``looped``: nothing in them returns, so that on a serial device an item may be a loop
    over many elements, which compilers turn into vector instructions.

    ``loads`` are values that the statements begin with: C type, name, and the expression at these indices. Where there
    are many threads, each loads them for as many elements as make ``vector_bytes`` before it computes: more of memory
    is asked for at once.

    ``line`` gives statements that come before those of an element and depend on operand ``line_of`` alone; where a line
    has one element of that, they stand before the loop over the line.
    """

    kernel: Kernel
    sizes: Sequence[int]
    strides: Sequence[Sequence[int]]
    body: Callable[[list[str]], str]
    helpers: str = ""
    looped: bool = False
    loads: Sequence[_Load] = ()
    line: Callable[[list[str]], str] | None = None
    line_of: int = 0

    @property
    def _many(self) -> int:
        """How many elements a thread takes, as long as its registers hold what it loads for them."""
        call = self.kernel.call
        if call.device.serial or not self.loads:
            return 1
        largest = max(ITEMSIZE[name_of(x.dtype)] for x in (*call.outputs, *call.inputs) if hasattr(x, "strides"))
        most = min(call.device.vector_bytes // largest, _REGISTERS // len(self.loads))
        return 1 << max(most, 1).bit_length() - 1

    def _element(self, at: list[str]) -> str:
        """The statements for one element, what they load included."""
        return self._line(at) + self._alone(at)

    def _line(self, at: list[str]) -> str:
        return f"{self.line(at)}\n" if self.line else ""

    def _alone(self, at: list[str]) -> str:
        return "\n".join((*(f"  const {c} {name} = {load(at)};" for c, name, load in self.loads), self.body(at)))

    def _elements(self, at: list[str], first: str, step: int, many: int, inside: str) -> str:
        """The statements for ``many`` elements of a thread, ``step`` apart, while ``inside`` holds."""
        loop = f"  UNROLL\n  for (i32 v = 0; v < {many}; ++v) {{\n  const idx i = {first} + v * {step};\n"
        arrays = "".join(f"  {c} {name}_[{many}];\n" for c, name, _ in self.loads)
        loaded = " ".join(f"{name}_[v] = {load(at)};" for _, name, load in self.loads)
        values = "".join(f"  const {c} {name} = {name}_[v];\n" for c, name, _ in self.loads)
        first_loop = f"{loop}  if ({inside}) {{ {loaded} }}\n  }}\n"
        return f"{arrays}{first_loop}{loop}  if (!({inside})) break;\n{values}{self.body(at)}\n  }}"

    def plan(self) -> LaunchPlan:
        """The launch: by lines where everything is contiguous, else over a grid of two dimensions."""
        sizes, strides = merge(self.sizes, *self.strides)
        flat = len(sizes) <= 1 and all(contiguous(sizes, s) or uniform(sizes, s) for s in strides)
        return LaunchPlan([self._flat(sizes, strides) if flat else self._grid(sizes, strides)])

    def _flat(self, sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Launch:
        device = self.kernel.call.device
        n = sizes[0] if sizes else 1
        # One element has the text of many: a kernel of its own would be compiled for nothing.
        at = ["0" if sizes and uniform(sizes, s) else "i" for s in strides]
        if self.looped and device.serial:
            loop = f"for (idx i = begin; i < end; ++i) {{\n{self._element(at)}\n  }}"
            return launch_chunks(self.kernel, n, loop, self.helpers)
        count, many = self.kernel.own_index(n), self._many
        if many > 1:
            of_group = many * device.group
            self.kernel.wide = self.kernel.wide or n + of_group >= 1 << 31  # the last group's indices
            body = f"  const idx first = (idx)GROUP(0) * {of_group} + LANE(0);\n"
            body += self._elements(at, "first", device.group, many, f"i < {count}")
            return self.kernel.launch(body, (-(-n // of_group),), (device.group,), self.helpers)
        body = f"  const idx i = (idx)GROUP(0) * {device.group} + LANE(0);\n  if (i >= {count}) return;\n"
        body += self._element(at)
        return self.kernel.launch(body, (-(-n // device.group),), (device.group,), self.helpers)

    def _grid(self, sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Launch:
        kernel, group = self.kernel, self.kernel.call.device.group
        if len(sizes) == 1:  # one line is the first of several: the same text
            sizes, strides = (1, *sizes), [(0, *steps) for steps in strides]
        *outer, inner = sizes
        rows = 1
        for size in outer:
            rows *= size
        looped = self.looped and kernel.call.device.serial
        exponent = (inner - 1).bit_length()
        if kernel.call.device.serial:
            exponent |= 1  # half as many kernels; an idle item of a loop costs no more than a comparison
        across = CHUNK if looped else min(group, 1 << exponent)
        down = max(1, CHUNK // inner) if looped else group // across
        many = self._many if inner >= across * self._many else 1
        tiles = -(-inner // (across * many))
        d = len(outer)
        size_names = [kernel.own_index(size) for size in sizes]
        count, wide = kernel.own_index(rows), kernel.own_index(tiles)
        names = [f"c{k}" for k in range(d)]
        at = []
        for steps in strides:
            terms = [f"{name} * {kernel.own_index(step)}" for name, step in zip(names, steps, strict=False)]
            # What a line shares is said in the text, so that compilers can load it once; what lines share is not.
            # Of strides that are arguments they only try for 1 whether a loop makes vectors, never for -1.
            along = "(-i)" if looped and steps[-1] == -1 else steps[-1] and f"i * {kernel.own_index(steps[-1])}"
            terms += [along] if along else []
            at.append(" + ".join(terms))
        if looped:
            height = kernel.own_index(down)
            hoisted = self.line is not None and not strides[self.line_of][-1]
            body = f"""  const idx from = (idx)GROUP(0) % {wide} * {across}, first = (idx)GROUP(0) / {wide} * {height};
  const idx to = from + {across} < {size_names[-1]} ? from + {across} : {size_names[-1]};
  const idx last = first + {height} < {count} ? first + {height} : {count};
  for (idx j = first; j < last; ++j) {{
    {coordinates("j", size_names[:-1], names)}
{self._line(at) if hoisted else ""}    for (idx i = from; i < to; ++i) {{
{self._alone(at) if hoisted else self._element(at)}
    }}
  }}"""
            return kernel.launch(body, (tiles * -(-rows // down),), (1,), self.helpers)
        if many > 1:
            body = (
                f"  const idx first = (idx)GROUP(0) % {wide} * {across * many} + LANE(0);\n"
                f"  const idx j = (idx)GROUP(0) / {wide} * {down} + LANE(1);\n"
                f"  if (j >= {count}) return;\n  {coordinates('j', size_names[:-1], names)}\n"
                f"{self._elements(at, 'first', across, many, f'i < {size_names[-1]}')}"
            )
            return kernel.launch(body, (tiles * -(-rows // down),), (across, down), self.helpers)
        body = (
            f"  const idx i = (idx)GROUP(0) % {wide} * {across} + LANE(0);\n"
            f"  const idx j = (idx)GROUP(0) / {wide} * {down} + LANE(1);\n"
            f"  if (i >= {size_names[-1]} || j >= {count}) return;\n"
            f"  {coordinates('j', size_names[:-1], names)}\n{self._element(at)}"
        )
        return kernel.launch(body, (tiles * -(-rows // down),), (across, down), self.helpers)


@template("pointwise")
def pointwise(call: Call) -> LaunchPlan:
    """``out_k = program(in...)``, several outputs in one loop."""
    c = register(call.compute)
    if call.compute in ("float32", "float64") and (launch := by_vectors(call, call.program)):
        return LaunchPlan([launch])
    kernel = Kernel(call, "pointwise")
    kernel.site = " ".join(("pointwise", *(name for name, *_ in call.program.instructions if name in DIVISIONS)))
    outputs = [kernel.output(k) for k in range(len(call.outputs))]
    inputs = [kernel.input(k) if hasattr(x, "strides") else kernel.scalar(k, c) for k, x in enumerate(call.inputs)]
    loaded = [f"x{k}" if isinstance(x, Tensor) else x for k, x in enumerate(inputs)]
    lines, values, helpers = program_text(call.program, loaded, c, lambda divisor: kernel.fault("division", "0"))

    def body(at: list[str]) -> str:
        text = [f"  {line}" for line in lines]
        text += [f"  {out.store(at[k], values[k], c)}" for k, out in enumerate(outputs)]
        return "\n".join(text)

    def load(k: int, x: Tensor) -> _Load:
        return c, f"x{k}", lambda at: x.load(at[len(outputs) + k], c)

    loads = [load(k, x) for k, x in enumerate(inputs) if isinstance(x, Tensor)]

    sizes = call.outputs[0].shape
    absent = (0,) * len(sizes)
    strides = [x.strides if hasattr(x, "strides") else absent for x in (*call.outputs, *call.inputs)]
    return Elementwise(kernel, sizes, strides, body, helpers, looped=True, loads=loads).plan()


@template("copy_cast")
def copy_cast(call: Call) -> LaunchPlan:
    """``out = cast(in)``; bit for bit where the dtypes are one."""
    out, x = call.outputs[0], call.inputs[0]
    if _by_float32(call) and (launch := by_vectors(call, _COPY)):
        return LaunchPlan([launch])
    kernel = Kernel(call, "copy_cast")
    target = kernel.output(0)
    if not hasattr(x, "strides"):
        c = _number_type(name_of(out.dtype))
        value = kernel.scalar(0, c)
        return Elementwise(
            kernel, out.shape, [out.strides], lambda at: "  " + target.store(at[0], value, c), looped=True
        ).plan()
    source = kernel.input(0)
    if source.dtype == target.dtype:
        if launch := transposed(call):
            return LaunchPlan([launch])
        bits = f"u{8 * ITEMSIZE[source.dtype]}"

        def move(at: list[str]) -> str:
            return f"  ((GLOBAL {bits}*)({target.pointer}))[{at[0]}] = x0;"

        bitwise: _Load = bits, "x0", lambda at: f"((GLOBAL const {bits}*)({source.pointer}))[{at[1]}]"
        return Elementwise(kernel, out.shape, [out.strides, x.strides], move, looped=True, loads=[bitwise]).plan()
    c = LOADED[source.dtype]

    def cast(at: list[str]) -> str:
        return "  " + target.store(at[0], "x0", c)

    loaded: _Load = c, "x0", lambda at: source.load(at[1], c)
    return Elementwise(kernel, out.shape, [out.strides, x.strides], cast, looped=True, loads=[loaded]).plan()


def _by_float32(call: Call) -> bool:
    """Whether every value of the source is one of float32, and another dtype or a copy of float32 is asked for."""
    x = call.inputs[0]
    if not hasattr(x, "strides") or name_of(x.dtype) not in _WITHIN_FLOAT32:
        return False
    return "float32" in (name_of(x.dtype), name_of(call.outputs[0].dtype)) or x.dtype != call.outputs[0].dtype


def _number_type(dtype: str) -> str:
    """The C type that a number for a dtype is passed as."""
    if dtype == "float64":
        return "f64"
    if dtype in ("float16", "bfloat16", "float32"):
        return "f32"
    return "u64" if dtype == "uint64" else "i64"


@template("fill")
def fill(call: Call) -> LaunchPlan:
    """``out = params[0]``."""
    out = call.outputs[0]
    kernel = Kernel(call, "fill")
    target = kernel.output(0)
    c = _number_type(target.dtype)
    number = kernel.param(0, c)
    return Elementwise(
        kernel, out.shape, [out.strides], lambda at: "  " + target.store(at[0], number, c), looped=True
    ).plan()


@template("iota")
def iota(call: Call) -> LaunchPlan:
    """``out[i] = params[0] + i * params[1]``."""
    out = call.outputs[0]
    kernel = Kernel(call, "iota")
    target = kernel.output(0)
    c = _number_type(target.dtype)
    if c in REAL and call.device.fp64:
        c = "f64"
    base, by = kernel.param(0, c), kernel.param(1, c)
    step_out = kernel.own_index(out.strides[0])
    count = kernel.own_index(out.numel)
    group = call.device.group
    body = (
        f"  const idx i = (idx)GROUP(0) * {group} + LANE(0);\n  if (i >= {count}) return;\n"
        f"  {target.store(f'i * {step_out}', f'{base} + ({c})i * {by}', c)}"
    )
    return LaunchPlan([kernel.launch(body, (-(-out.numel // group),), (group,))])
