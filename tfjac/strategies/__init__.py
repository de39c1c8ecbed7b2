"""The strategies, in the order in which `Plan.explain` lists them."""

from __future__ import annotations

from tfjac.strategies.base import Cost, Problem, Source, Strategy, Support
from tfjac.strategies.cross_country import CrossCountry
from tfjac.strategies.forward import Forward
from tfjac.strategies.structural import Structural
from tfjac.strategies.unstack import Unstack
from tfjac.strategies.vectorized import Vectorized
from tfjac.strategies.while_loop import WhileLoop

STRATEGIES: tuple[Strategy, ...] = (
    Unstack(),
    WhileLoop(),
    Vectorized(),
    Forward(),
    Structural(),
    CrossCountry(),
)


def names() -> tuple[str, ...]:
    """Returns the names that a `strategy` argument takes, "auto" first."""
    return ("auto", *(strategy.name for strategy in STRATEGIES))


__all__ = [
    "STRATEGIES",
    "Cost",
    "CrossCountry",
    "Forward",
    "Problem",
    "Source",
    "Strategy",
    "Structural",
    "Support",
    "Unstack",
    "Vectorized",
    "WhileLoop",
    "names",
]
