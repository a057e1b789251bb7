"""Pointwise programs in the vectors of a dialect, for serial devices whose compiler has functions of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tesserack_kernelgen.emit import constant

if TYPE_CHECKING:
    from tesserack_kernelgen.card import Call

__all__ = ["has_vectors", "vector_helpers", "vector_program"]

#: A vector from memory and back; the last one of a loop is a part, whose other elements are 0 and are not stored.
_HELPERS = """DEVICE {v} load_vector(GLOBAL const f32* p, i32 many) {{
  if (many == {n}) return vload{n}(0, p);
  f32 part[{n}];
  for (i32 j = 0; j < {n}; ++j) part[j] = j < many ? p[j] : 0;
  return vload{n}(0, part);
}}
DEVICE void store_vector(GLOBAL f32* p, i32 many, {v} x) {{
  if (many == {n}) {{ vstore{n}(x, 0, p); return; }}
  f32 part[{n}];
  vstore{n}(x, 0, part);
  for (i32 j = 0; j < many; ++j) p[j] = part[j];
}}
#define LOAD_VECTOR(p, i, many) load_vector((GLOBAL const f32*)(p) + (i), many)
#define STORE_VECTOR(p, i, many, x) store_vector((GLOBAL f32*)(p) + (i), many, x)"""

# Drivers' own takes 100 ns an element. Below 1 an odd polynomial, above it 1 - exp(-x^2) q(1 / (1 + 0.4 x)); fitted by
# least squares, weighted again until the errors level out, and within 2.5 units in the last place.
_SMALL = (
    *(1.12837917, -0.376126258, 0.112835851, -0.0268538119, 0.00518832763),
    *(-0.00080101931, 7.85385961e-05),
)
_LARGE = (
    *(-0.00146911777, 0.244000117, 0.128263058, 0.491462624, -0.308352076, 0.5644268),
    *(-0.0850875486, -0.0332810646),
)


def _horner(coefficients: Sequence[float], x: str) -> str:
    text = f"{coefficients[-1]!r}f"
    for value in reversed(coefficients[:-1]):
        text = f"({text} * {x} + {value!r}f)"
    return text


_ERF = f"""
DEVICE {{v}} erf_vector({{v}} x) {{{{
  const {{v}} a = fmin(fabs(x), 4.2f), z = a * a, t = 1 / (1 + 0.4f * a);
  const {{v}} small = a * {_horner(_SMALL, "z")}, large = 1 - exp(-z) * {_horner(_LARGE, "t")};
  const {{v}} y = copysign((a < 1) ? small : large, x);
  return (x != x) ? x : y;
}}}}"""

# PoCL's sin and tan of a vector are wrong by 1e-2 in its small elements if another is beyond 39000: those go alone.
_PERIODIC = """
DEVICE {{v}} {name}_vector({{v}} x) {{{{
  const {{v}} y = {name}((fabs(x) < 3e4f) ? x : ({{v}})(0));
  if (all(fabs(x) < 3e4f)) return y;
  f32 given[{{n}}], taken[{{n}}];
  vstore{{n}}(x, 0, given);
  vstore{{n}}(y, 0, taken);
  for (i32 j = 0; j < {{n}}; ++j)
    if (!(fabs(given[j]) < 3e4f)) taken[j] = {name}(given[j]);
  return vload{{n}}(0, taken);
}}}}"""
_OWN = {"erf": _ERF, **{name: _PERIODIC.format(name=name) for name in ("sin", "cos", "tan")}}

_FUNCTIONS = (
    *("sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "trunc"),
)
_TRUTH = "(({condition}) ? ({V})(1) : ({V})(0))"
_TEXT = {
    **{name: name + "({a})" for name in _FUNCTIONS},
    **{name: name + "_vector({a})" for name in _OWN},
    **{
        name: _TRUTH.replace("{condition}", f"{{a}} {sign} {{b}}")
        for name, sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
    },
    "copy": "{a}",
    "not": _TRUTH.replace("{condition}", "{a} == 0"),
    "add": "{a} + {b}",
    "sub": "{a} - {b}",
    "mul": "{a} * {b}",
    "div": "{a} / {b}",
    "neg": "-{a}",
    "abs": "fabs({a})",
    "sign": f"{_TRUTH.replace('{condition}', '{a} > 0')} - {_TRUTH.replace('{condition}', '{a} < 0')}",
    "recip": "1 / {a}",
    "rsqrt": "1 / sqrt({a})",
    "sigmoid": "1 / (1 + exp(-{a}))",
    "round": "rint({a})",
    "select": "({a} != 0) ? {b} : {c}",
    "max": "(({a} > {b}) | ({a} != {a})) ? {a} : {b}",
    "min": "(({a} < {b}) | ({a} != {a})) ? {a} : {b}",
    "pow": "pow({a}, {b})",
    "fmod": "fmod({a}, {b})",
    "atan2": "atan2({a}, {b})",
    "hypot": "hypot({a}, {b})",
    "copysign": "copysign({a}, {b})",
    "fma": "{a} * {b} + {c}",
}


def has_vectors(call: Call) -> bool:
    """Whether the device runs loops, its dialect has functions of vectors, and the program needs no others."""
    if not call.device.serial or not call.card.dialect.vector_functions or call.compute != "float32":
        return False
    return all(name in _TEXT for name, *_ in call.program.instructions)


def vector_helpers(program: Any, v: str, lanes: int) -> str:
    """The functions that loads, stores and the program's instructions call, for vectors of type ``v``."""
    called = {name for name, *_ in program.instructions}
    needed = _HELPERS + "".join(text for name, text in _OWN.items() if name in called)
    return needed.format(v=v, n=lanes)


def vector_program(program: Any, inputs: Sequence[str], v: str) -> tuple[list[str], list[str]]:
    """Statements, and the expressions of the outputs; registers are float32 vectors of type ``v``."""
    registers = [*inputs, *(f"(({v})({constant(value, 'f32')}))" for value in program.constants)]
    lines = []
    for number, (name, *operands) in enumerate(program.instructions):
        given = dict(zip("abc", (registers[k] for k in operands), strict=False))
        lines.append(f"const {v} r{number} = {_TEXT[name].format(V=v, **given)};")
        registers.append(f"r{number}")
    return lines, [registers[k] for k in program.outputs]
