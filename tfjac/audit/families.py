"""All samples, family by family."""

from __future__ import annotations

from tfjac.audit import (
    composites,
    lists,
    losses,
    matrices,
    movement,
    neighbors,
    pointwise,
    reductions,
    sparse,
)

# Of each registered op type.
OPS = tuple(
    sample
    for family in (*(pointwise, movement, reductions, matrices, neighbors, losses, sparse, lists),)
    for sample in family.SAMPLES
)
# Of public functions made of several ops.
COMPOSITES = tuple(composites.SAMPLES)
SAMPLES = (*OPS, *COMPOSITES)
