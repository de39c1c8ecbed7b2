"""`python -m tfjac bench`: the strategies on a function of one's own, beside TensorFlow's ways."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from absl import app, flags

from tfjac import errors, strategies
from tfjac.bench import own, plot, screen, tables
from tfjac.bench.jobs import Peer, Task
from tfjac.bench.measurement import Settings, Workload, run

_MODULE = "tfjac.bench.tensorflow_peers"


def define_flags(output: str = "output/bench") -> None:
    """Defines the flags that say how to run, whatever is run."""
    flags.DEFINE_integer("rounds", 11, "Rounds at most, each of every contender.", lower_bound=1)
    flags.DEFINE_float("seconds", 20.0, "For the rounds of one workload; 3 rounds at least.")
    flags.DEFINE_float("timeout", 120.0, "Seconds after which a contender is given up.")
    flags.DEFINE_enum(
        "memory", "both", ["both", "as_is", "kept"], "Whether freed memory is kept for reuse."
    )
    flags.DEFINE_string("output", output, "Folder for report.json, report.md and the plot.")


def settings() -> Settings:
    """Returns what the flags say."""
    values = flags.FLAGS
    keeping = {"both": (False, True), "as_is": (False,), "kept": (True,)}[values.memory]
    return Settings(values.rounds, values.seconds, min(3, values.rounds), values.timeout, keeping)


def run_and_report(workloads: Sequence[Workload], peers: Sequence[Peer], how: Settings) -> int:
    """Runs, prints the tables and writes report.json, report.md, speed_up.png and speed_up.svg.

    Returns:
      The exit status: 0 where tfjac answered everywhere and rightly, else 1. What peers get wrong
      is reported and changes nothing.
    """
    with screen.progress(len(workloads)) as (say, done):
        report = run(workloads, peers, how, say, done)
    screen.show(report)
    folder = pathlib.Path(flags.FLAGS.output)
    report.write_json(folder / "report.json")
    (folder / "report.md").write_text(tables.markdown(report))
    plot.write(report, folder / "speed_up")
    print(f"written: {folder}/report.json, report.md, speed_up.png, speed_up.svg")
    return 0 if report.is_ours_right() else 1


def define_own_flags() -> None:
    """Defines the flags of `python -m tfjac bench`."""
    define_flags()
    flags.DEFINE_string(
        "function", None, "module:name of a function of one tensor, or a .keras file."
    )
    flags.DEFINE_list(
        "shape", None, "Shape of its argument, as 32,784; entries are drawn at random."
    )
    flags.DEFINE_string("input", None, "A .npy file with its argument, instead of --shape.")
    flags.DEFINE_string("dtype", "float32", "Of its argument.")
    flags.DEFINE_bool("batch", False, "Per-example Jacobians, rather than the whole one.")
    flags.DEFINE_list(
        "strategies",
        [name for name in strategies.names() if name != "auto"],
        "To be timed besides auto.",
    )
    flags.mark_flag_as_required("function")


def main(argv: Sequence[str]) -> int:
    """Runs `python -m tfjac bench`; returns the exit status."""
    del argv
    values = flags.FLAGS
    if (values.shape is None) == (values.input is None):
        raise app.UsageError("give either --shape or --input")
    try:
        own.load(values.function)
    except errors.InvalidValueError as error:
        raise app.UsageError(str(error)) from None
    options = {
        "shape": values.shape and tuple(int(size) for size in values.shape),
        "dtype": values.dtype,
        "path": values.input,
        "batch": values.batch,
    }
    task = Task("tfjac.bench.own", values.function, tuple(options.items()))
    peers = (
        Peer("tfjac", _MODULE, (("school", "tfjac"), ("strategies", tuple(values.strategies)))),
        Peer("tensorflow", _MODULE, (("school", "tensorflow"),)),
        Peer("by hand", _MODULE, (("school", "by hand"),)),
    )
    return run_and_report([Workload(task, values.function)], peers, settings())
