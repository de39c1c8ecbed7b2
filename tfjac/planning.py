"""Which strategy builds the Jacobian, and why."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Hashable, Sequence
from typing import TypeVar

import tensorflow as tf

from tfjac import errors, nominal
from tfjac.strategies import STRATEGIES, Cost, Problem, Strategy, Support, base, names

T = TypeVar("T")

AUTO = "auto"

_LONGEST_CHAIN = 12

# What is written out row by row grows the graph: "auto" leaves it out beyond so many ops in all and
# for each op on the way.
MOST_OPS = 20_000
_MOST_FOR_EACH = 20
# Predictions so close are taken to be the same: what is quicker to construct is chosen.
_TIE = 1.1


@dataclasses.dataclass(frozen=True)
class Answer:
    """What one strategy said of a problem.

    Args:
      strategy: the strategy.
      support: whether it takes the problem.
      cost: what it would spend; None where it does not.
    """

    strategy: Strategy
    support: Support
    cost: Cost | None

    @property
    def seconds(self) -> float:
        """What `auto` minimizes: predicted seconds of one evaluation."""
        return self.cost.seconds

    def line(self, problem: Problem) -> str:
        """Returns the answer in one line."""
        name = f"{self.strategy.name:<12}"
        if not self.support.ok:
            return f"{name} refused: {self.support.reason}"
        cost = self.cost
        if cost.order:
            parts = [cost.order]
        else:
            parts = [
                f"passes {'unknown' if cost.passes is None else cost.passes}",
                f"at once {'all' if cost.chunk_size is None else cost.chunk_size}",
            ]
        parts += [
            f"{_amount(cost.flops(problem))}FLOP",
            f"{_amount(cost.memory(problem))}B held",
            f"about {cost.graph_ops} graph ops in {cost.construction:.2g} s",
        ]
        if cost.loops:
            parts.append(f"one by one: {', '.join(cost.loops)}")
        return f"{name} {1e3 * cost.seconds:.3g} ms: {', '.join(parts)}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What was decided for one target, and what each strategy answered.

    Args:
      strategy: the strategy that builds.
      answers: one for each strategy, or for the one that was named.
      problem: what was to be planned.
    """

    strategy: Strategy
    answers: tuple[Answer, ...]
    problem: Problem

    @property
    def at_once(self) -> int:
        """Rows or columns that the chosen strategy carries at once."""
        cost = next(a.cost for a in self.answers if a.strategy is self.strategy)
        passes = self.problem.expected_rows if cost.passes is None else cost.passes
        return int(passes if cost.chunk_size is None else min(passes, cost.chunk_size))

    @property
    def seconds(self) -> float:
        """Predicted seconds of one evaluation by the chosen strategy."""
        return next(a.seconds for a in self.answers if a.strategy is self.strategy)

    def with_strategy(self, name: str) -> Plan:
        """Returns the plan with another one of the strategies that take the problem chosen."""
        chosen = next(a.strategy for a in self.answers if a.strategy.name == name)
        return dataclasses.replace(self, strategy=chosen)

    def seconds_of(self, name: str) -> float:
        """Returns what a strategy that takes the problem is predicted to need, by its name."""
        return next(a.seconds for a in self.answers if a.strategy.name == name)

    def explain(self) -> str:
        """Returns the plan as text: the choice, what each strategy costs or why not, the chain.

        Costs are those of all passes: floating-point operations, and bytes held at once with the
        result. The chain are the tensors through which every path from x to y runs.
        """
        lines = [_title(self.problem), f"strategy: {self.strategy.name}"]
        if not self.problem.is_sized:
            lines.append(f"sizes that the graph does not tell are taken to be {nominal.SIZE}")
        lines += [f"  {answer.line(self.problem)}" for answer in self.answers]
        return "\n".join([*lines, f"chain: {_chain(self.problem)}"])

    __str__ = explain


def choose(problem: Problem, strategy: str | Strategy, chunk_size: int | str | None) -> Plan:
    """Returns the plan for `problem`: the strategy named, or under "auto" the fastest predicted.

    Args:
      problem: the problem.
      strategy: "auto", a name of `strategies.names()`, or a Strategy of the caller's.
      chunk_size: passes to carry at once, for the strategies that carry several.

    Raises:
      UnsupportedError: if the named strategy, or each of them, refuses the problem.
    """
    budget = chunk_size.bytes if isinstance(chunk_size, base.MemoryBudget) else None
    answers = tuple(_ask(s, problem, budget) for s in _candidates(strategy, chunk_size))
    if strategy == AUTO:
        answers = _bounded(answers, max(MOST_OPS, _MOST_FOR_EACH * len(problem.ops)))
    ranked = _ranked(answers)
    if not ranked:
        refusals = "; ".join(f"{a.strategy.name}: {a.support.reason}" for a in answers)
        raise errors.UnsupportedError(
            f"no strategy can build this Jacobian ({_title(problem)}). {refusals}. "
            'Use strategy="auto" or another one.'
        )
    return Plan(ranked[0].strategy, answers, problem)


def _bounded(answers: Sequence[Answer], most: int) -> tuple[Answer, ...]:
    """Returns answers without those that would add more ops than that, if others are left."""
    small = [not a.support.ok or a.cost.graph_ops <= most for a in answers]
    if not any(a.support.ok for a, is_small in zip(answers, small) if is_small):
        return tuple(answers)
    refused = Support(False, f"it would add more than {most} ops to the graph")
    return tuple(
        a if is_small else Answer(a.strategy, refused, None) for a, is_small in zip(answers, small)
    )


def _ranked(answers: Sequence[Answer]) -> list[Answer]:
    """Returns those that take the problem, best first."""
    willing = [a for a in answers if a.support.ok]
    return _best_first(willing, [(a.seconds, _effort(a.cost)) for a in willing])


def _effort(cost: Cost) -> float:
    """Returns what decides between strategies that are as fast: ops to construct.

    First of all none for passes: without them a branch that is not taken cannot spoil the one that
    is.
    """
    return 0.0 if cost.passes == 0 else cost.graph_ops


def _best_first(ways: Sequence[T], costs: Sequence[tuple[float, float]]) -> list[T]:
    """Returns the ways by their costs in seconds and effort, the fastest first.

    Of those that are predicted to be as fast, first comes what is less effort.
    """
    order = sorted(range(len(ways)), key=lambda k: costs[k][0])
    tied = [k for k in order if costs[k][0] <= _TIE * costs[order[0]][0]]
    return [ways[k] for k in [*sorted(tied, key=lambda k: costs[k][1]), *order[len(tied) :]]]


def build(
    problem: Problem, strategy: str | Strategy, chunk_size: int | str | None
) -> list[tf.Tensor | None]:
    """Returns the Jacobians that the strategy of the plan builds.

    Under "auto" the next best takes over where that one turns out not to be able to, as where
    TensorFlow cannot differentiate the gradient of an op once more, with a warning.

    Args:
      problem: as in `choose`.
      strategy: as in `choose`.
      chunk_size: as in `choose`.

    Raises:
      UnsupportedError: as `choose`, or that of the best strategy if none can build it.
    """
    plan = choose(problem, strategy, chunk_size)
    failures = []
    for answer in _ranked(plan.answers):
        try:
            built = answer.strategy.build(problem)
        except errors.UnsupportedError as error:
            failures.append(error)
            continue
        if failures:
            warnings.warn(
                f"{plan.strategy.name} could not build this Jacobian after all: {failures[0]}. "
                f"{answer.strategy.name} did",
                errors.StrategyFallbackWarning,
                stacklevel=2,
            )
        return built
    raise failures[0]


def best(plans: Sequence[Plan], number: int) -> list[str]:
    """Returns the names of the best strategies that all plans could go by, best first.

    Args:
      plans: of several targets, or parts of them.
      number: how many at most.
    """
    costs: dict[str, tuple[float, float]] = {}
    for strategy in STRATEGIES:
        answers = [a for p in plans for a in p.answers if a.strategy.name == strategy.name]
        if answers and all(a.support.ok for a in answers):
            effort = sum(_effort(answer.cost) for answer in answers)
            costs[strategy.name] = (sum(answer.seconds for answer in answers), effort)
    return _best_first(list(costs), list(costs.values()))[:number]


def within(
    memory_budget: int | None, chunk_size: int | str | None
) -> int | str | None | base.MemoryBudget:
    """Returns the chunk size that goes with a memory budget, or raises where both are given."""
    if memory_budget is None:
        return chunk_size
    if isinstance(memory_budget, bool) or not isinstance(memory_budget, int):
        raise errors.InvalidTypeError(
            errors.message(
                "memory_budget", "a number of bytes, or None", repr(memory_budget), "Give an int."
            )
        )
    if memory_budget < 1 or chunk_size != "auto":
        raise errors.InvalidValueError(
            errors.message(
                "memory_budget",
                'positive, and given without chunk_size (which is then "auto")',
                f"{memory_budget} with chunk_size={chunk_size!r}",
                "It chooses chunk_size.",
            )
        )
    return base.MemoryBudget(memory_budget)


def check_strategy(strategy: str | Strategy, chunk_size: int | str | None) -> None:
    """Raises unless `strategy` is known and goes with `chunk_size`."""
    _candidates(strategy, chunk_size)


def _candidates(strategy: str | Strategy, chunk_size: int | str | None) -> list[Strategy]:
    if strategy == AUTO:
        return [_with_chunk_size(s, chunk_size) for s in STRATEGIES]
    if not isinstance(strategy, str):
        wanted = ("name", "supports", "cost", "build")
        # What was built is looked up by strategy: it must be hashable, as frozen dataclasses are.
        if not all(hasattr(strategy, name) for name in wanted) or not isinstance(
            strategy, Hashable
        ):
            raise errors.InvalidTypeError(
                errors.message(
                    "strategy",
                    "a name, or a hashable object with name, supports, cost and build",
                    repr(strategy),
                    f"The names are {', '.join(names())}.",
                )
            )
        found = strategy
    else:
        found = next((s for s in STRATEGIES if s.name == strategy), None)
    if found is None:
        raise errors.InvalidValueError(
            errors.message(
                "strategy",
                "one of " + ", ".join(names()),
                repr(strategy),
                "Choose one of these, or pass a strategy of your own.",
            )
        )
    if isinstance(chunk_size, int) and not hasattr(found, "chunk_size"):
        raise errors.InvalidValueError(
            errors.message(
                "chunk_size",
                f'"auto" or None with strategy {found.name!r}, which carries one row at a time',
                str(chunk_size),
                "Leave it out, or use a strategy that carries several.",
            )
        )
    return [_with_chunk_size(found, chunk_size)]


def _with_chunk_size(strategy: Strategy, chunk_size: int | str | None) -> Strategy:
    if chunk_size == "auto" or not hasattr(strategy, "chunk_size"):
        return strategy
    return dataclasses.replace(strategy, chunk_size=chunk_size)


def _ask(strategy: Strategy, problem: Problem, budget: int | None) -> Answer:
    support = strategy.supports(problem)
    if not support.ok:
        return Answer(strategy, support, None)
    cost = strategy.cost(problem)
    held = cost.memory(problem)
    if budget is not None and held > budget:
        reason = f"it would hold {_amount(held)}B, and memory_budget is {_amount(budget)}B"
        return Answer(strategy, Support(False, reason), None)
    return Answer(strategy, support, cost)


def _title(problem: Problem) -> str:
    kind = "Jacobian"
    if problem.apart:
        kind += f" with {problem.apart} leading {'axis' if problem.apart == 1 else 'axes'} apart"
    sources = ", ".join(str(source.shape) for source in problem.sources)
    return f"{kind} of {problem.y.shape} by {sources}, {len(problem.ops)} ops between"


def _chain(problem: Problem) -> str:
    """Returns the chain with the sizes of its tensors, the middle left out where it is long."""
    links = [f"{t.op.name} {t.shape[problem.apart :]}" for t in problem.chain]
    if len(links) > _LONGEST_CHAIN:
        half = _LONGEST_CHAIN // 2
        links = [*links[:half], f"({len(links) - 2 * half} more)", *links[-half:]]
    return " -> ".join(links) if links else "none"


def _amount(number: float | None) -> str:
    """Returns a number with a unit's prefix."""
    if number is None:
        return "unknown "
    for prefix in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {prefix}"
        number /= 1000
    return f"{number:.3g} T"
