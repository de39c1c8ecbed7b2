"""The arguments of one call: what identifies them, and the tensors in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfjac import errors, nests
from tfjac.graph import sources
from tfjac.graph import sources as sources_lib

_ARRAYS = (tf.Tensor, np.ndarray, np.generic, tf.Variable)
_OBJECTS = (
    "Tensors within an object are seen where it is a tf.experimental.ExtensionType, or a dataclass "
    "with __tf_flatten__ and __tf_unflatten__."
)


@dataclasses.dataclass(frozen=True)
class InputSignature:
    """The `tf.TypeSpec`s of the positional arguments; hashable also where they nest in dicts.

    Args:
      specs: for each argument a `tf.TypeSpec` or nested structure of them.
      key: what tells it from others.
    """

    specs: tuple[Any, ...] = dataclasses.field(compare=False)
    key: Hashable

    @classmethod
    def of(cls, specs: Any) -> InputSignature | None:
        """Returns the signature that the user gave, None for None, or raises."""
        if specs is None:
            return None
        leaves = tf.nest.flatten(specs)
        if not isinstance(specs, (list, tuple)) or not all(
            isinstance(leaf, tf.TypeSpec) for leaf in leaves
        ):
            raise errors.InvalidTypeError(
                errors.message(
                    "input_signature",
                    "a list of tf.TypeSpec, or of nested structures of them",
                    f"{specs!r:.80}",
                    "Give one element for each positional argument.",
                )
            )
        return cls(tuple(specs), (*map(structure_key, specs), *leaves))


class Call:
    """Positional and keyword arguments taken apart into tensors and the rest.

    Tensors, NumPy arrays, variables (their value at the call), the tensors in composite ones and,
    in source arguments, Python numbers become tensors. Every other leaf is a constant of the graph
    and part of the key.

    Args:
      args: positional arguments.
      kwargs: keyword arguments.
      argnums: which positional arguments are the sources.
      input_signature: for each positional argument a `tf.TypeSpec` or structure of them, or None.

    Raises:
      InvalidValueError: fewer arguments than argnums names, or arguments that do not fit the
        signature.
      InvalidTypeError: a source or a tensor of the wrong kind.
    """

    def __init__(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        argnums: Sequence[int],
        input_signature: Sequence[Any] | None,
    ):
        if max(argnums) >= len(args):
            raise errors.InvalidValueError(
                errors.message(
                    "argnums",
                    f"below the number of positional arguments, {len(args)}",
                    f"{max(argnums)}",
                    "Pass the sources by position.",
                )
            )
        if input_signature is not None:
            _check_structure(args, input_signature)
        self.tensors: list[tf.Tensor] = []
        self.specs: list[tf.TensorSpec] = []
        self._rebuilders: list[Callable[[Any], Any]] = []
        self._structure = (tuple(args), kwargs)
        keys = []
        for i, arg in enumerate(args):
            signature = None if input_signature is None else input_signature[i]
            specs = tf.nest.flatten(signature) if input_signature else [None] * _leaf_count(arg)
            keys += [
                self._take(leaf, spec, i in argnums, f"args[{i}]")
                for leaf, spec in zip(tf.nest.flatten(arg), specs)
            ]
        keys += [self._take(leaf, None, False, "kwargs") for leaf in tf.nest.flatten(kwargs)]
        self.key: Hashable = (*map(structure_key, args), structure_key(kwargs), *keys)

    def rebuild(self, tensors: Sequence[tf.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments with `tensors`, flat, in the place of the caller's."""
        remaining = iter(tensors)
        leaves = [rebuild(remaining) for rebuild in self._rebuilders]
        return tf.nest.pack_sequence_as(self._structure, leaves)

    def _take(self, leaf, spec: tf.TypeSpec | None, is_source: bool, argument: str) -> Hashable:
        # The questions about other leaves cost 20 us each (2026-12-01): not asked of a tensor.
        is_tensor = isinstance(leaf, tf.Tensor)
        leaf = leaf if is_tensor else sources.unwrap(leaf)
        if not is_tensor and sources.is_composite(leaf):
            parts = tf.nest.flatten(leaf, expand_composites=True)
            # One that holds variables, as a linear operator may, is a constant that reads them.
            if all(isinstance(part, tf.Tensor) for part in parts):
                return self._take_composite(leaf, parts, spec, is_source, argument)
        if (
            isinstance(leaf, _ARRAYS)
            or spec is not None
            or (is_source and isinstance(leaf, (int, float, complex)))
        ):
            return self._take_tensor(leaf, spec, is_source, argument)
        if is_source:
            raise errors.InvalidTypeError(
                errors.message(
                    argument,
                    "tensors or arrays, as it is a source",
                    f"{leaf!r:.60} of type {type(leaf).__name__}",
                    f"Choose the sources by argnums. {_OBJECTS}",
                )
            )
        return self._take_constant(leaf, argument)

    def _take_tensor(self, leaf, spec, is_source, argument) -> Hashable:
        tensor = _converted(leaf, spec, argument)
        _check_spec(tensor, spec, argument)
        if is_source and not (tensor.dtype.is_floating or tensor.dtype.is_complex):
            raise errors.InvalidTypeError(
                errors.message(
                    argument,
                    "floating or complex, as it is a source",
                    f"dtype {tensor.dtype.name}",
                    "Cast it first, or choose the sources by argnums.",
                )
            )
        self.tensors.append(tensor)
        self._rebuilders.append(next)
        if spec is not None:
            self.specs.append(spec)
            return spec
        self.specs.append(tf.TensorSpec(tensor.shape, tensor.dtype))
        # A symbolic tensor may have an unknown rank; graphs do not look the key up.
        shape = tuple(tensor.shape) if tensor.shape.rank is not None else None
        return shape, tensor.dtype

    def _take_composite(self, leaf, parts, spec, is_source, argument) -> Hashable:
        if is_source and nests.is_opened(leaf):
            nests.Nest(leaf, argument)  # raises unless it has what can be differentiated by
        elif is_source:
            raise errors.InvalidTypeError(
                errors.message(
                    argument,
                    "dense tensors, as it is a source",
                    f"a {type(leaf).__name__}",
                    "Differentiate by its values and rebuild it in the function.",
                )
            )
        _check_spec(leaf, spec, argument)
        if spec is None:
            spec = tf.type_spec_from_value(leaf)
            self.specs += [tf.TensorSpec(part.shape, part.dtype) for part in parts]
        else:
            self.specs += tf.nest.flatten(spec, expand_composites=True)
        self.tensors += parts
        self._rebuilders.append(
            lambda remaining: tf.nest.pack_sequence_as(
                spec, [next(remaining) for _ in parts], expand_composites=True
            )
        )
        return spec

    def _take_constant(self, leaf, argument) -> Hashable:
        try:
            hash(leaf)
        except TypeError:
            raise errors.InvalidTypeError(
                errors.message(
                    argument,
                    "a tensor, an array or hashable",
                    f"a {type(leaf).__name__}",
                    f"Bind it in the function instead. {_OBJECTS}",
                )
            ) from None
        self._rebuilders.append(lambda remaining: leaf)
        # By its text where equal is not the same: 0.0 and -0.0; NaN is not even equal to itself.
        return type(leaf), repr(leaf) if isinstance(leaf, (float, complex)) else leaf


def _check_spec(value, spec: tf.TypeSpec | None, argument: str) -> None:
    if spec is not None and not spec.is_compatible_with(value):
        got = f"a {type(value).__name__}"
        if isinstance(value, tf.Tensor):
            got = f"shape {value.shape} and dtype {value.dtype.name}"
        raise errors.InvalidValueError(
            errors.message(
                argument,
                f"as input_signature says, {spec}",
                got,
                "Convert it, or widen the signature.",
            )
        )


def _converted(leaf, spec: tf.TypeSpec | None, argument: str) -> tf.Tensor:
    if isinstance(leaf, tf.Tensor):
        return leaf
    try:
        return tf.convert_to_tensor(leaf, spec.dtype if isinstance(spec, tf.TensorSpec) else None)
    except (TypeError, ValueError):
        wanted = "a tensor or an array" if spec is None else f"a tensor or an array, {spec}"
        raise errors.InvalidTypeError(
            errors.message(
                argument,
                wanted,
                f"{leaf!r:.60} of type {type(leaf).__name__}",
                "Convert it with tf.convert_to_tensor.",
            )
        ) from None


def _check_structure(args, input_signature) -> None:
    try:
        tf.nest.assert_same_structure(tuple(args), tuple(input_signature), check_types=False)
    except (ValueError, TypeError):
        raise errors.InvalidValueError(
            errors.message(
                "args",
                f"as input_signature says, {input_signature}",
                f"{len(args)} arguments of another structure",
                "Pass one argument for each element of the signature.",
            )
        ) from None


def _leaf_count(arg) -> int:
    return len(tf.nest.flatten(arg))


def structure_key(value: Any) -> Hashable:
    """Returns what tells one nested structure from another: types, lengths and names, no leaves."""
    if not tf.nest.is_nested(value):
        return None
    if isinstance(value, Mapping):
        return type(value), *((name, structure_key(value[name])) for name in value)
    if isinstance(value, (list, tuple)):
        return type(value), *map(structure_key, value)
    if hasattr(value, "__tf_flatten__"):
        fixed, parts = value.__tf_flatten__()
        return type(value), _hashable(fixed), *map(structure_key, parts)
    return type(value), repr(tf.nest.map_structure(lambda _: 0, value))


def _hashable(fixed: Any) -> Hashable:
    """Returns what a dataclass says is not a tensor, or raises."""
    try:
        hash(fixed)
    except TypeError:
        raise errors.InvalidTypeError(
            errors.message(
                "args",
                "such that what __tf_flatten__ gives first is hashable",
                f"{fixed!r:.60}",
                "Give a tuple of hashable values.",
            )
        ) from None
    return fixed


def any_symbolic(args, kwargs) -> bool:
    """Returns whether any tensor among the arguments is one of a graph."""
    return any(
        tf.is_symbolic_tensor(leaf)
        for leaf in tf.nest.flatten((args, kwargs), expand_composites=True)
        if tf.is_tensor(leaf)
    )


def as_graph_tensor(y: Any) -> Any:
    """Returns `y` as a tensor of the graph: a function may return a constant from outside it."""
    if nests.is_opened(y):
        return tf.nest.map_structure(as_graph_tensor, y, expand_composites=True)
    if sources_lib.is_composite(y):
        return y  # the graph functions say what they think of it
    if y is None:
        raise errors.InvalidTypeError(
            errors.message(
                "fn", "a function that returns tensors", "None", "Return the target from it."
            )
        )
    y = tf.convert_to_tensor(y)
    return y if tf.is_symbolic_tensor(y) else tf.identity(y)
