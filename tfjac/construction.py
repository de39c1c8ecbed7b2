"""From targets and sources to Jacobians: proofs, parts, the strategy's ops, zeros written."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from tfjac import blocks, errors, graph_memo, nests, planning, problems, shapes, tapes
from tfjac import independence as independence_lib
from tfjac.problems import Nested
from tfjac.strategies import Problem, Source, Strategy, base

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Options:
    """What `jacobian` was asked for besides targets and sources; see its docstring."""

    strategy: str | Strategy
    chunk_size: int | str | None | base.MemoryBudget
    holomorphic: bool
    zeros: bool
    structured: bool


def options_of(
    strategy: str | Strategy = planning.AUTO,
    chunk_size: int | str | None = "auto",
    unconnected_gradients: str | tf.UnconnectedGradients = "zero",
    holomorphic: bool = False,
    structured: bool = False,
    memory_budget: int | None = None,
) -> Options:
    """Returns the options, checked."""
    check_options(strategy, chunk_size)
    chunk_size = planning.within(memory_budget, chunk_size)
    zeros = problems.zeros_wanted(unconnected_gradients)
    return Options(strategy, chunk_size, holomorphic, zeros, structured)


def operate(
    ys: Nested, xs: Nested, batch: bool, options: Options, name: str, proof: str = "assume"
) -> Nested:
    """Returns the Jacobians of all targets by all sources, one per example where `batch`."""
    independence_lib.check_option(proof)
    target_nest, source_nest = nests.Nest(ys, "ys"), nests.Nest(xs, "xs")
    flat_xs = source_nest.leaves
    results = []
    with problems.building(target_nest.leaves, "ys", name) as targets:
        for y in targets:
            problem = problems.problem(y, flat_xs, batch)
            _check_complex(problem, options.holomorphic)
            if proof == independence_lib.PROVE:
                for source in problem.sources:
                    independence_lib.check(y, source)
            key = (
                "jacobian",
                problem.y.ref(),
                *(s.value.ref() for s in problem.sources),
                batch,
                options,
            )
            by_source = graph_memo.memoized_unless_recording(
                key,
                functools.partial(
                    tapes.recorded,
                    functools.partial(_by_source, problem, options),
                    problem.y,
                    problem.ops,
                ),
            )
            row = [by_source[i] for i in problems.positions(problem, flat_xs)]
            results.append(source_nest.pack(row))
    return target_nest.pack(results)


def check_options(strategy: str | Strategy, chunk_size: int | str | None) -> None:
    """Raises unless both are known and go together."""
    shapes.check_chunk_size(chunk_size)
    planning.check_strategy(strategy, chunk_size)


def _check_complex(problem: Problem, holomorphic: bool) -> None:
    both = problem.y.dtype.is_complex and any(s.dtype.is_complex for s in problem.sources)
    if both and not holomorphic:
        raise errors.InvalidValueError(
            errors.message(
                "holomorphic",
                "True where target and source are complex",
                f"target {problem.y.name!r} of dtype {problem.y.dtype.name}",
                "Pass holomorphic=True if dy/dx exists, else differentiate its real and imaginary "
                "parts.",
            )
        )
    if holomorphic and not both:
        raise errors.InvalidValueError(
            errors.message(
                "holomorphic",
                "False unless target and source are complex",
                f"target {problem.y.name!r} of dtype {problem.y.dtype.name}",
                "Leave it out.",
            )
        )


def _by_source(problem: Problem, options: Options) -> list[tf.Tensor | None]:
    """Returns the Jacobian by each source."""
    found: dict[Source, tf.Tensor | None] = {}
    for part in groups(problem):
        is_mixed = problem.y.dtype.is_complex and not part.sources[0].dtype.is_complex
        solve = functools.partial(_complex_by_real if is_mixed else _solve, options=options)
        part, solved = as_shown(part, problem.apart, solve)
        for source, jacobian_ in zip(part.sources, solved):
            found[source] = _finished(part, problem.apart, source, jacobian_, options)
    return [found[source] for source in problem.sources]


def as_shown(part: Problem, wanted: int, make: Callable[[Problem], T]) -> tuple[Problem, T]:
    """Returns the problem and what is made of it, with as many axes apart as were shown to be.

    With as many as are `wanted` where the strategy does not follow what was shown, as by indices.
    """
    try:
        return part, make(part)
    except errors.UnsupportedError as refusal:
        if part.apart == wanted:
            raise
        whole = dataclasses.replace(part, apart=wanted)
        try:
            return whole, make(whole)
        except errors.UnsupportedError:
            raise refusal from None


def groups(problem: Problem) -> list[Problem]:
    """Returns the problem in parts: by axes kept apart; real and complex sources by themselves."""
    parts: dict[tuple[bool, int], list[Source]] = {}
    for source in problem.sources:
        apart = max(problem.apart, independence_lib.apart(problem.target, source))
        parts.setdefault((source.dtype.is_complex, apart), []).append(source)
    return [
        dataclasses.replace(
            problem, sources=tuple(sources), apart=apart, spread=apart > problem.apart
        )
        for (_, apart), sources in parts.items()
    ]


def _complex_by_real(problem: Problem, options: Options) -> list[tf.Tensor | None]:
    parts = [
        _solve(dataclasses.replace(problem, y=part(problem.y)), options)
        for part in (tf.math.real, tf.math.imag)
    ]
    return [None if real is None else tf.complex(real, imag) for real, imag in zip(*parts)]


def _solve(problem: Problem, options: Options) -> list[tf.Tensor | None]:
    if not problem.ops and problem.y.ref() not in [s.value.ref() for s in problem.sources]:
        return [None] * len(problem.sources)
    filled = tuple(s for s in problem.sources if not shapes.are_empty(s.shape, problem.y.shape))
    part = dataclasses.replace(problem, sources=filled)
    built = planning.build(part, options.strategy, options.chunk_size) if filled else []
    found = dict(zip(filled, built))
    return [found[s] if s in found else _zeros(problem, s) for s in problem.sources]


def _finished(
    part: Problem, wanted: int, source: Source, jacobian_: tf.Tensor | None, options: Options
) -> tf.Tensor | blocks.BlockDiagonal | None:
    """Returns the Jacobian with its zeros, dtype, static shape and run-time checks in place."""
    if jacobian_ is None:
        if not options.zeros:
            return None
        jacobian_ = _zeros(part, source)
    if jacobian_.dtype != part.y.dtype and not jacobian_.dtype.is_complex:
        jacobian_ = tf.cast(jacobian_, part.y.dtype)
    checks = problems.check_example_counts(part) if wanted else []
    if checks:
        with tf.control_dependencies(checks):
            jacobian_ = tf.identity(jacobian_)
    if options.structured:
        return blocks.BlockDiagonal(jacobian_, part.y.shape.rank, part.apart)
    y_shape, x_shape = shapes.shape_of(part.y), source.run_time_shape()
    jacobian_ = blocks.spread(jacobian_, y_shape, x_shape, part.apart, wanted)
    jacobian_.set_shape(part.y.shape.concatenate(source.shape[wanted:]))
    return jacobian_


def _zeros(problem: Problem, source: Source) -> tf.Tensor:
    dtype = source.dtype if source.dtype.is_complex else problem.y.dtype
    return tf.zeros(base.jacobian_shape(problem, source), dtype)
