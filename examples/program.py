"""What the smaller examples share: their flags, where the picture goes, checks that are printed."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable, Sequence

import tensorflow as tf
from absl import app, flags


def define_flags(picture: str, steps: int | None = None, takes_data: bool = False) -> None:
    """Defines --output_dir and --seed; --steps and --data where asked.

    Args:
      picture: the name of the picture, for the help.
      steps: default of --steps, of what an example trains.
      takes_data: whether the example is about digits.
    """
    flags.DEFINE_string("output_dir", "output", f"Where to write {picture}.")
    flags.DEFINE_integer("seed", 0, "Seed of all that is random.", lower_bound=0)
    if steps is not None:
        flags.DEFINE_integer("steps", steps, "Steps of training.", lower_bound=1)
    if takes_data:
        flags.DEFINE_string(
            "data",
            None,
            "A mnist.npz as Keras keeps it. Default: Keras's own, downloaded once; "
            "without a network the 8x8 digits within scikit-learn.",
        )


def run(example: Callable[[], None]) -> None:
    """Runs `example` with the flags parsed and the seed set.

    Args:
      example: the whole of it.
    """

    def main(argv: Sequence[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"unknown argument {argv[1]!r}")
        tf.keras.utils.set_random_seed(flags.FLAGS.seed)
        example()

    app.run(main)


def load_digits():
    """Returns the digits that --data names, or ends the program with the reason in one line."""
    import digits

    try:
        found = digits.load(flags.FLAGS.data)
    except digits.DataError as error:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {error}")
    print(f"data: {found.name} ({found.source})")
    return found


def picture_path(name: str) -> pathlib.Path:
    """Returns where to write the picture, in a folder that is there.

    Args:
      name: of the file.
    """
    path = pathlib.Path(flags.FLAGS.output_dir) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {error}")
    return path


def check(what: str, difference: float, most: float) -> None:
    """Prints that `difference` is small, or ends the program.

    Args:
      what: is compared with what.
      difference: between the two.
      most: it may be.
    """
    line = f"{what}: {difference:.2g}, at most {most:.3g} wanted"
    if not difference <= most:  # so that NaN fails too
        sys.exit(f"check failed: {line}")
    print(f"check passed: {line}")
