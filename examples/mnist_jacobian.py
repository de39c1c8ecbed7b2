"""Trains a small classifier of handwritten digits and times the Jacobian of its outputs by pixels.

    python examples/mnist_jacobian.py
    python examples/mnist_jacobian.py --strategy=vectorized --hidden=256 --activation=relu
    python examples/mnist_jacobian.py --full

Prints what each strategy costs, and draws which pixels the outputs depend on.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
from collections.abc import Sequence

import digits as digit_data
import measuring
import numpy as np
import tensorflow as tf
from absl import app, flags

import tfjac

try:
    from rich import box
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Table
except ImportError:
    sys.exit("This example prints with rich: pip install 'tfjac[examples]'")

ALL = "all"
REFERENCE = "unstack"
EPOCHS = 5
MOST_TRAINED_ON = 8000
SHOWN = 6


@dataclasses.dataclass(frozen=True)
class Settings:
    """The net and the Jacobian that the flags ask for.

    Args:
      full: whether the whole Jacobian is meant, not one per example.
      batch_size: number of examples to differentiate at.
      hidden: units of the hidden layers.
      activation: of the hidden layers.
      num_outputs: how many outputs of the net to differentiate.
      net_outputs: how many the net has: ten logits, or one, the logit of "this digit is odd".
    """

    full: bool
    batch_size: int
    hidden: tuple[int, ...]
    activation: str
    num_outputs: int
    net_outputs: int

    @property
    def is_binary(self) -> bool:
        """True if the net tells odd digits from even ones."""
        return self.net_outputs == 1


def define_flags() -> None:
    """Defines the flags; not on import, so that other programs may import this file."""
    tfjac.flags.define(strategy=ALL, other_strategies=[ALL])
    flags.DEFINE_bool(
        "full",
        False,
        "The job this project began with: the whole Jacobian, [500, 1, 500, 784], "
        "of a net 784-256-256-1. Changes the defaults below.",
    )
    flags.DEFINE_integer(
        "batch_size",
        None,
        "Examples to differentiate at. Default: 256; 500 with --full.",
        lower_bound=1,
    )
    flags.DEFINE_list(
        "hidden", None, "Units of the hidden layers. Default: 512,512; 256,256 with --full."
    )
    flags.DEFINE_string("activation", "sigmoid", "Activation of the hidden layers, as in Keras.")
    flags.DEFINE_integer(
        "num_outputs",
        None,
        "How many of the net's ten logits to differentiate, the first ones. "
        "Default: 10; 1 with --full, where a 1 means a net with one output, the logit of "
        '"this digit is odd".',
        lower_bound=1,
        upper_bound=digit_data.CLASSES,
    )
    flags.DEFINE_integer("runs", 10, "Evaluations to time for each strategy.", lower_bound=1)
    flags.DEFINE_string(
        "data",
        None,
        "A mnist.npz as Keras keeps it. Default: Keras's own, downloaded once; "
        "without a network the 8x8 digits within scikit-learn.",
    )
    flags.DEFINE_string("output_dir", "output", "Where to write saliency.png.")
    flags.DEFINE_integer("seed", 0, "Seed of the net and its training.", lower_bound=0)
    flags.register_validator(
        "hidden",
        lambda sizes: all(size.isdecimal() and int(size) for size in sizes or ()),
        "must be positive integers with commas between, as 512,512",
    )
    flags.register_validator("activation", _checked_activation)


def main(argv: Sequence[str]) -> None:
    """Runs the example."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]!r}")
    tfjac.keep_freed_memory()
    settings = settings_from_flags()
    options = tfjac.flags.options()
    terminal = sys.stdout.isatty()
    width = None if terminal or "COLUMNS" in os.environ else 110
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    try:
        check_options(options)
        digits = digit_data.load(flags.FLAGS.data)
        x = examples(digits, settings.batch_size)
        picture = pathlib.Path(flags.FLAGS.output_dir) / "saliency.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
    except (tfjac.errors.InvalidValueError, digit_data.DataError, OSError) as error:
        sys.exit(f"{pathlib.Path(__file__).name}: {error}")
    tf.keras.utils.set_random_seed(flags.FLAGS.seed)
    model = build(settings)
    with progress_bar(console, terminal) as progress:
        accuracy = train(model, digits, settings, progress)
        describe(console, digits, settings, accuracy)
        job = measuring.Job(outputs(model, settings), x, not settings.full, options)
        report(console, job, settings, progress)
    draw(picture, console, model, digits, settings, job)


def settings_from_flags() -> Settings:
    """Returns the settings, with the defaults that depend on --full filled in."""
    values = flags.FLAGS
    full = values.full
    num_outputs = values.num_outputs or (1 if full else digit_data.CLASSES)
    return Settings(
        full,
        values.batch_size or (500 if full else 256),
        tuple(int(size) for size in values.hidden or ((256, 256) if full else (512, 512))),
        values.activation,
        num_outputs,
        1 if full and num_outputs == 1 else digit_data.CLASSES,
    )


def check_options(options: dict) -> None:
    """Raises InvalidValueError if the options contradict or the device is unknown.

    Differentiates x by x, since what is wrong should be known before a net is trained.
    """
    strategy = "auto" if options["strategy"] == ALL else options["strategy"]
    tfjac.prepare(tf.identity, **{**options, "strategy": strategy})(tf.constant(1.0))


def examples(digits: digit_data.Digits, count: int) -> tf.Tensor:
    """Returns the first `count` digits that the net is trained on, shape `[count, 784]`."""
    if count > len(digits.x_train):
        raise digit_data.DataError(
            f"--batch_size={count} is more than the {len(digits.x_train)} digits of {digits.source}"
        )
    return tf.constant(digits.x_train[:count])


def build(settings: Settings) -> tf.keras.Model:
    """Returns the net, which takes `[n, 784]` and gives logits `[n, net_outputs]`."""
    layers = [tf.keras.layers.Dense(units, settings.activation) for units in settings.hidden]
    return tf.keras.Sequential(
        [tf.keras.Input([digit_data.PIXELS]), *layers, tf.keras.layers.Dense(settings.net_outputs)]
    )


def train(
    model: tf.keras.Model, digits: digit_data.Digits, settings: Settings, progress: Progress
) -> float:
    """Trains `model` and returns its accuracy on the test digits."""
    if settings.is_binary:
        loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
        metric = tf.keras.metrics.BinaryAccuracy("accuracy", threshold=0.0)
    else:
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        metric = "accuracy"
    model.compile("adam", loss, metrics=[metric], jit_compile=False)
    task = progress.add_task("training", total=EPOCHS)
    model.fit(
        digits.x_train[:MOST_TRAINED_ON],
        labels(digits.y_train[:MOST_TRAINED_ON], settings),
        batch_size=64,
        epochs=EPOCHS,
        verbose=0,
        callbacks=[
            tf.keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: progress.advance(task)
            )
        ],
    )
    return model.evaluate(digits.x_test, labels(digits.y_test, settings), verbose=0)[1]


def labels(y: np.ndarray, settings: Settings) -> np.ndarray:
    """Returns what the net is to say of the digits `y`."""
    return y % 2 if settings.is_binary else y


def outputs(model: tf.keras.Model, settings: Settings):
    """Returns the function to differentiate: the net, or its first `num_outputs` logits."""
    if settings.num_outputs == settings.net_outputs:
        return model
    return lambda x: model(x)[:, : settings.num_outputs]


def describe(
    console: Console, digits: digit_data.Digits, settings: Settings, accuracy: float
) -> None:
    """Prints the data and the net."""
    sizes = "-".join(map(str, (digit_data.PIXELS, *settings.hidden, settings.net_outputs)))
    trained_on = min(len(digits.x_train), MOST_TRAINED_ON)
    console.print(
        f"data: {digits.name} ({digits.source}), {trained_on} digits to train on, "
        f"{len(digits.x_test)} to test",
        soft_wrap=True,
    )
    console.print(
        f"net: {sizes}, {settings.activation}; {EPOCHS} epochs; it tells "
        f"{'odd from even digits' if settings.is_binary else 'the ten digits apart'}; "
        f"test accuracy {accuracy:.1%}",
        soft_wrap=True,
    )


def report(console: Console, job: measuring.Job, settings: Settings, progress: Progress) -> None:
    """Measures the strategies asked for; prints the plan, the table and the forward pass."""
    console.print(f"\nplan of auto: {job.jacobian('auto').explain(job.x)}\n", soft_wrap=True)
    forward = job.forward_pass()
    forward(job.x)
    forward_ms = measuring.median_ms(forward, job.x, flags.FLAGS.runs)
    rows = measure_all(job, progress)
    console.print(table(rows, measuring.count_ops(job.trace(forward)), settings))
    console.print(f"forward pass alone: median {forward_ms:.2f} ms")
    if REFERENCE not in [row.strategy for row in rows]:
        console.print(f"{REFERENCE} was built for the differences only")


def measure_all(job: measuring.Job, progress: Progress) -> list[measuring.Figures]:
    """Returns the figures of each strategy asked for, in tfjac's order."""
    asked = job.options["strategy"]
    names = [s.name for s in tfjac.strategies.STRATEGIES] if asked == ALL else [asked]
    runs = flags.FLAGS.runs
    task = progress.add_task("", total=runs * len(names))
    first_seen = measuring.FirstSeen()
    if REFERENCE not in names:
        measuring.measure(_whole_rows(job, REFERENCE), REFERENCE, first_seen, runs=0)
    rows = []
    for name in names:
        progress.update(task, description=name)
        rows.append(
            measuring.measure(
                _whole_rows(job, name) if asked == ALL else job,
                name,
                first_seen,
                runs,
                lambda: progress.advance(task),
            )
        )
    return rows


def table(rows: Sequence[measuring.Figures], forward_ops: int, settings: Settings) -> Table:
    """Returns the figures as a table."""
    kind = "Jacobian of all examples" if settings.full else "Jacobian of each example"
    result = Table(title=f"{kind}, {settings.batch_size} examples", box=box.SIMPLE_HEAD)
    result.add_column("strategy", no_wrap=True)
    for header in ("build\ns", "ops\nadded", "first call\nms", "median\nms"):
        result.add_column(header, justify="right")
    result.add_column("shape")
    result.add_column(f"difference\nfrom {REFERENCE}", justify="right")
    for row in rows:
        result.add_row(row.strategy, *_cells(row, forward_ops))
    return result


def draw(
    path: pathlib.Path,
    console: Console,
    model: tf.keras.Model,
    digits: digit_data.Digits,
    settings: Settings,
    job: measuring.Job,
) -> None:
    """Writes the picture at `path`, or says why not."""
    try:
        import saliency
    except ImportError as error:
        console.print(f"no picture: {error}. pip install 'tfjac[examples]'")
        return
    chosen = distinct(digits.y_test, SHOWN)
    x, true = digits.x_test[chosen], digits.y_test[chosen]
    images = x.reshape([-1, digit_data.SIDE, digit_data.SIDE])
    jacobian = dataclasses.replace(job, batch=True).jacobian("auto")(x).numpy()
    maps = jacobian.reshape([len(x), -1, digit_data.SIDE, digit_data.SIDE])
    if settings.is_binary:
        odd = model(x).numpy()[:, 0] > 0
        saliency.draw_single(
            path,
            images,
            maps[:, 0],
            [
                f"{y}, taken for {'odd' if says_odd else 'even'}"
                for y, says_odd in zip(true, odd, strict=True)
            ],
            odd == true % 2,
            "∂ logit of “odd” / ∂ pixel",
            f"Pixels that speak for an odd (red) or an even digit (blue)\n"
            f"test digits of {digits.name}",
        )
    else:
        saliency.draw_classes(
            path,
            images,
            maps,
            true,
            model(x).numpy().argmax(axis=1),
            f"Pixels that the logit of each class depends on, test digits of {digits.name}",
        )
    console.print(f"picture: {path}", soft_wrap=True)


def distinct(y: np.ndarray, count: int) -> list[int]:
    """Returns the indices of the first `count` entries of `y` that repeat none before them."""
    return sorted(np.unique(y, return_index=True)[1])[:count]


def progress_bar(console: Console, terminal: bool) -> Progress:
    """Returns a bar that goes when it is done, and shows nothing where there is no terminal."""
    return Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        refresh_per_second=4,
        transient=True,
        disable=not terminal,
    )


def _checked_activation(name: str) -> bool:
    try:
        tf.keras.activations.get(name)
    except ValueError:
        raise flags.ValidationError(
            "must be an activation of Keras, as sigmoid, relu or tanh"
        ) from None
    return True


def _whole_rows(job: measuring.Job, strategy: str) -> measuring.Job:
    """Returns `job` without its chunk size if `strategy` carries one row at a time."""
    carries_several = any(
        s.name == strategy and hasattr(s, "chunk_size") for s in tfjac.strategies.STRATEGIES
    )
    if carries_several:
        return job
    return dataclasses.replace(job, options={**job.options, "chunk_size": "auto"})


def _cells(row: measuring.Figures, forward_ops: int) -> list[str]:
    if row.remark:
        return ["", "", "", "", row.remark, ""]
    difference = f"{row.difference:.1e}" if row.difference else "0"
    return [
        f"{row.seconds_to_build:.2f}",
        f"{row.ops - forward_ops:,}",
        f"{row.first_ms:,.1f}",
        f"{row.median_ms:,.1f}",
        str(row.shape),
        difference,
    ]


if __name__ == "__main__":
    define_flags()
    app.run(main)
