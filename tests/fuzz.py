"""Random TensorFlow programs: lists of steps that print as code which can be run by itself.

A program is grown from its sources one line at a time, and each line is evaluated as it is drawn,
so that the next one knows shapes and values: steps with a kink are drawn only away from it.
"""

from __future__ import annotations

import dataclasses
import textwrap

import hypothesis.strategies as st
import numpy as np
import tensorflow as tf

# What programs may call besides TensorFlow. It is text, for it is printed with them.
PREAMBLE = '''\
import numpy as np
import tensorflow as tf

f32, f64, f16, bf16 = tf.float32, tf.float64, tf.float16, tf.bfloat16


def c(shape, seed, dtype, low=-1.5, high=1.5):
    return tf.constant(np.random.default_rng(seed).uniform(low, high, shape), dtype)


def turned(a):
    """Moves entries of the last axis on by one, by a product with a matrix."""
    matrix = tf.roll(tf.eye(a.shape[-1], dtype=a.dtype), 1, 0)
    return tf.matmul(a, matrix) if a.shape.rank > 1 else tf.linalg.matvec(matrix, a)


stopped = tf.stop_gradient


@tf.custom_gradient
def surrogate(a):
    """Has the derivative of another function than the one that it computes."""
    return tf.floor(a * 4.0) / 4.0, lambda u: u * (1.0 + a * a)


def slope(fn, a):
    with tf.GradientTape() as tape:
        tape.watch(a)
        b = fn(a)
    return tape.gradient(b, a)
'''


@dataclasses.dataclass(frozen=True)
class Source:
    """An argument of a program.

    Args:
      name: in its code.
      shape: of the value that it is run with.
      spec: of its signature, with None where a size is not told.
      dtype: "f32", "f64" or "tf.complex128".
      low, high: between which the values are.
      edge: "zeros" or "ties" where some entries are zero or the same, else "".
    """

    name: str
    shape: tuple[int, ...]
    spec: tuple[int | None, ...]
    dtype: str
    low: float = -1.5
    high: float = 1.5
    edge: str = ""

    def value(self, rows: int | None = None) -> np.ndarray:
        """Returns the value, or another of that many rows."""
        shape = self.shape if rows is None else (rows, *self.shape[1:])
        drawn = np.random.default_rng(int(self.name[1:])).uniform(-1.5, 1.5, (2, *shape))
        whole = drawn[0] + 1j * drawn[1] if "complex" in self.dtype else self._placed(drawn[0])
        return whole.astype(self.tensorflow_dtype().as_numpy_dtype)

    def _placed(self, drawn: np.ndarray) -> np.ndarray:
        """Returns values within the bounds, with what the edge asks for."""
        found = self.low + (drawn + 1.5) / 3.0 * (self.high - self.low)
        flat = found.reshape(-1)
        if self.edge == "zeros":
            flat[:: 2 if flat.size < 5 else 3] = 0.0
        elif self.edge == "ties":
            flat[1::2] = flat[:1]
        return flat.reshape(drawn.shape)

    def tensorflow_dtype(self, exact: bool = False) -> tf.DType:
        """Returns the dtype; if `exact`, float64 where it is float32."""
        if "complex" in self.dtype:
            return tf.complex128
        return tf.float32 if self.dtype == "f32" and not exact else tf.float64


@dataclasses.dataclass(frozen=True, repr=False)
class Program:
    """Sources, steps and which tensor is the target.

    Args:
      sources: the arguments.
      steps: lines of code, each of which assigns one tensor.
      target: name of the tensor returned.
      smooth: whether it has no kink anywhere, so that other values may be tried.
      hidden: whether a body has a `stop_gradient`, so that differences of its values do not tell
        its derivative.
      single: whether it computes in float32 whatever it is given.
    """

    sources: tuple[Source, ...]
    steps: tuple[str, ...]
    target: str
    smooth: bool = True
    hidden: bool = False
    single: bool = False

    def definition(self) -> str:
        """Returns the function as code."""
        lines = [*self.steps, f"return {self.target}"]
        names = ", ".join(s.name for s in self.sources)
        return f"def fn({names}):\n" + textwrap.indent("\n".join(lines), "    ")

    def __repr__(self) -> str:
        specs = [f"tf.TensorSpec({list(s.spec)}, {s.dtype})" for s in self.sources]
        lines = [PREAMBLE, "", self.definition(), "", "", f"specs = [{', '.join(specs)}]"]
        for s in self.sources:
            value = f"np.array({s.value().tolist()}).reshape({list(s.shape)})"
            lines.append(f"{s.name} = tf.constant({value}, {s.dtype})")
        return "\n" + "\n".join(lines) + "\n"

    def function(self, **names):
        """Returns the program as a function of tensors, some names standing for others."""
        scope: dict = {}
        exec(compile(PREAMBLE, "<preamble>", "exec"), scope)
        scope.update(names)
        exec(compile(self.definition(), "<program>", "exec"), scope)
        return scope["fn"]

    def specs(self) -> list[tf.TensorSpec]:
        """Returns the signature."""
        return [tf.TensorSpec(s.spec, s.tensorflow_dtype()) for s in self.sources]

    def values(self, rows: int | None = None) -> list[np.ndarray]:
        """Returns a value for each source."""
        return [s.value(rows) for s in self.sources]

    def batched(self) -> bool:
        """Returns whether all sources have a first axis of one size that is not told."""
        firsts = {(s.shape[:1], s.spec[:1]) for s in self.sources}
        return len(firsts) == 1 and all(s.spec and s.spec[0] is None for s in self.sources)


class Inapplicable(Exception):
    """No tensor of the program suits a step."""


class Scope:
    """The tensors of a program that is being drawn, and draws of them.

    Args:
      draw: of hypothesis.
      apart: whether to prefer steps that leave the first axis alone.
    """

    def __init__(self, draw, apart: bool = False) -> None:
        self.draw, self.apart = draw, apart
        self.values: dict[str, tf.Tensor] = {}
        self.kinks = self.hidden = False

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one_of(self, *options):
        return self.draw(st.sampled_from(options))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def order(self, count: int) -> list[int]:
        """Returns the numbers below `count` in some order."""
        return list(self.draw(st.permutations(range(count))))

    def name(self, rank=(0, 9), test=None, dtype=None, filled=False) -> str:
        """Returns a tensor, of the last ones more often, that suits."""
        suited = [
            name
            for name, value in self.values.items()
            if rank[0] <= value.shape.rank <= rank[1]
            and (value.dtype.is_floating if dtype is None else value.dtype == dtype)
            and (value.shape.num_elements() or not filled)
            and (test is None or test(value.numpy()))
        ]
        if not suited:
            raise Inapplicable
        back = min(self.integer(0, len(suited) - 1), self.integer(0, len(suited) - 1))
        return suited[-1 - back]

    def shape(self, name: str) -> list[int]:
        return self.values[name].shape.as_list()

    def axis(self, name: str, least: int = 0) -> int:
        """Returns an axis of at least that size, not the first where examples are apart."""
        sizes = self.shape(name)
        axes = [a for a, n in enumerate(sizes) if n >= least and (a or not self.apart)]
        if not axes:
            raise Inapplicable
        return self.one_of(*axes)

    def written(self, name: str, axis: int) -> int:
        """Returns an axis as it may be written, from the front or from the back."""
        return axis - len(self.shape(name)) if self.flag() else axis

    def partner(self, name: str, test) -> str:
        """Returns a tensor of the same dtype whose value suits `test`."""
        return self.name(test=test, dtype=self.values[name].dtype)

    def constant(self, shape, of: str, low: float = -1.5, high: float = 1.5) -> str:
        seed = self.integer(0, 9)
        span = "" if (low, high) == (-1.5, 1.5) else f", {low}, {high}"
        return f"c({list(shape)}, {seed}, {of}.dtype{span})"


LARGEST = 36


def accepted(value: tf.Tensor) -> bool:
    """Returns whether a tensor may be gone on with."""
    if not (value.dtype.is_floating or value.dtype.is_complex):
        return False
    array = value.numpy()
    return array.ndim <= 5 and array.size <= LARGEST and bool(np.all(np.abs(array) < 30))


def _shapes(scope: Scope, rank: int) -> tuple[int, ...]:
    sizes = [scope.one_of(2, 3, 2, 3, 1, 4, 0) for _ in range(rank)]
    while np.prod(sizes) > 16:
        sizes[int(np.argmax(sizes))] -= 1
    return tuple(sizes)


def _sources(scope: Scope) -> tuple[Source, ...]:
    count = scope.one_of(1, 1, 1, 2, 3)
    rows, dtype = scope.one_of(3, 2, 3, 1, 3, 0), scope.one_of("f64", "f64", "f64", "f32")
    unknown = scope.one_of("none", "none", "rows", "rows", "some")
    found = []
    for k in range(count):
        rank = scope.one_of(2, 1, 3, 2, 4, 0)
        shape = _shapes(scope, rank)
        if scope.apart:
            shape = (rows, *(shape[1:] if rank else ()))
        spec = tuple(
            None if unknown == "rows" and a == 0 or unknown == "some" and scope.flag() else n
            for a, n in enumerate(shape)
        )
        own = "tf.complex128" if scope.integer(0, 19) == 19 else dtype
        found.append(Source(f"x{k}", shape, spec, own))
    return tuple(found)


@st.composite
def programs(draw, steps, most: int = 7) -> Program:
    """Returns a program of at most `most` steps, which `steps` draw from a scope as code."""
    scope = Scope(draw)
    scope.apart = scope.one_of(True, True, False)
    sources = _sources(scope)
    names: dict = {}
    exec(compile(PREAMBLE, "<preamble>", "exec"), names)
    for s in sources:
        scope.values[s.name] = tf.constant(s.value())
    lines: list[str] = []
    count = scope.one_of(*range(1, most + 1))
    for _ in range(3 * count):
        if len(lines) == count:
            break
        kinks, hidden = scope.kinks, scope.hidden
        try:
            code = draw(st.sampled_from(steps))(scope)
        except Inapplicable:
            continue
        try:
            value = eval(code, {**names, **scope.values})
        except tf.errors.InvalidArgumentError:
            value = None  # TensorFlow refuses the op for such sizes, as those of an empty batch
        if value is None or not accepted(value):
            scope.kinks, scope.hidden = kinks, hidden
            continue
        name = f"v{len(scope.values)}"
        lines.append(f"{name} = {code}")
        scope.values[name] = value
    target = list(scope.values)[-1]
    if not lines or any("complex" in s.dtype for s in sources):
        # Of complex by complex there is no Jacobian unless it is holomorphic.
        part = "tf.math.real" if scope.values[target].dtype.is_complex else "tf.identity"
        lines.append(f"y = {part}({target})")
        target = "y"
    return Program(sources, tuple(lines), target, not scope.kinks, scope.hidden)
