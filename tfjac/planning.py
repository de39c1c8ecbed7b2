"""Which strategy builds the Jacobian, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

from tfjac import errors
from tfjac.strategies import STRATEGIES, Cost, Problem, Strategy, Support, names

AUTO = "auto"

# Graph ops whose construction and optimization weigh as much as one pass; see BUILD_NOTES.md,
# "Costs of the four strategies".
_OPS_PER_PASS = 200


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
    def score(self) -> float:
        """What `auto` minimizes, in vector-Jacobian products."""
        return self.cost.work + self.cost.graph_ops / _OPS_PER_PASS

    def line(self) -> str:
        """Returns the answer in one line."""
        name = f"{self.strategy.name:<12}"
        if not self.support.ok:
            return f"{name} refused: {self.support.reason}"
        passes = "unknown" if self.cost.passes is None else self.cost.passes
        chunk = "all" if self.cost.chunk_size is None else self.cost.chunk_size
        return (
            f"{name} score {self.score:.1f}: passes {passes}, at once {chunk}, work "
            f"{self.cost.work:.1f}, about {self.cost.graph_ops} graph ops"
        )


@dataclasses.dataclass(frozen=True)
class Plan:
    """What was decided for one target, and what each strategy answered.

    Args:
      strategy: the strategy that builds.
      answers: one for each strategy, or for the one that was named.
      title: the problem in one line.
    """

    strategy: Strategy
    answers: tuple[Answer, ...]
    title: str

    def explain(self) -> str:
        """Returns the plan as text: the choice, then the cost of each strategy or its refusal."""
        lines = [self.title, f"strategy: {self.strategy.name}"]
        return "\n".join(lines + [f"  {answer.line()}" for answer in self.answers])

    __str__ = explain


def choose(problem: Problem, strategy: str | Strategy, chunk_size: int | str | None) -> Plan:
    """Returns the plan for `problem`: the strategy named, or under "auto" the one of least score.

    Args:
      problem: the problem.
      strategy: "auto", a name of `strategies.names()`, or a Strategy of the caller's.
      chunk_size: passes to carry at once, for the strategies that carry several.

    Raises:
      UnsupportedError: if the named strategy, or each of them, refuses the problem.
    """
    answers = tuple(_ask(s, problem) for s in _candidates(strategy, chunk_size))
    willing = [answer for answer in answers if answer.support.ok]
    if not willing:
        refusals = "; ".join(f"{a.strategy.name}: {a.support.reason}" for a in answers)
        raise errors.UnsupportedError(
            f"no strategy can build this Jacobian ({_title(problem)}). {refusals}. "
            'Use strategy="auto" or another one.'
        )
    best = min(willing, key=lambda answer: answer.score)
    return Plan(best.strategy, answers, _title(problem))


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


def _ask(strategy: Strategy, problem: Problem) -> Answer:
    support = strategy.supports(problem)
    return Answer(strategy, support, strategy.cost(problem) if support.ok else None)


def _title(problem: Problem) -> str:
    kind = "batch Jacobian" if problem.batch else "Jacobian"
    sources = ", ".join(str(source.shape) for source in problem.sources)
    return f"{kind} of {problem.y.shape} by {sources}, {len(problem.ops)} ops between"
