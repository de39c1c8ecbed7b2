"""Times real networks beside TensorFlow's tape: `python -m benchmarks.networks [--only=resnet]`.

The Jacobian of each example by its input: `tfjac.prepare(batch=True)` under `auto`, and the tape's
`batch_jacobian` in a `tf.function`, vectorized and in a loop; by turns in one process, the batch
known and unknown when it is built. Answers are compared before a time is reported, and the
predicted time stands beside the measured one.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import time
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

import tfjac
from benchmarks.real_networks import NETWORKS, Function, Network
from tfjac import nominal

ONLY = flags.DEFINE_list("only", [], "Names of networks, or parts of them; all where empty.")
BATCHES = flags.DEFINE_list("batches", ["1", "2", "32"], "Numbers of examples.")
SIZES = flags.DEFINE_list("sizes", ["known", "unknown"], "Whether the batch is known when built.")
ROUNDS = flags.DEFINE_integer("rounds", 11, "Rounds to time.", lower_bound=3)
SECONDS = flags.DEFINE_float("seconds", 10.0, "For the rounds of one row; at least three are run.")
XLA = flags.DEFINE_bool("xla", False, "The tape compiled by XLA too.")
OUTPUT = flags.DEFINE_string("output", None, "Folder for networks.json and networks.md.")

# Of float32 through fifty layers: the greatest difference over the greatest entry.
_TOLERANCE = 1e-3
# A loop of the tape that is predicted to be slower than that is left out.
_MOST_ROWS = 100


@dataclasses.dataclass(frozen=True)
class Row:
    """What was measured of a network, in seconds.

    Args:
      network: its name.
      batch: number of examples.
      sizes: "known" or "unknown".
      chosen: the strategy of `auto`.
      predicted: what its plan says, for 32 examples where their number is not known.
      first: of the first call of each, by name.
      medians: of later ones, by name.
    """

    network: str
    batch: int
    sizes: str
    chosen: str
    predicted: float
    first: dict[str, float]
    medians: dict[str, float]

    @property
    def ratio(self) -> float:
        """The fastest of the tape's ways over ours."""
        return min(t for name, t in self.medians.items() if name != "tfjac") / self.medians["tfjac"]

    def line(self) -> str:
        """Returns a row of the table."""
        ours = self.medians["tfjac"]
        tapes = [t for name, t in self.first.items() if name != "tfjac"]
        others = ", ".join(f"{n} {t * 1e3:.3g}" for n, t in self.medians.items() if n != "tfjac")
        return (
            f"| {self.network} | {self.batch} | {self.sizes} | {self.chosen} "
            f"| {self.predicted * 1e3:.3g} | {ours * 1e3:.3g} | {others} | {self.ratio:.2f} "
            f"| {self.first['tfjac'] / min(tapes):.1f} |"
        )


_HEADER = (
    "| network | examples | batch | strategy | predicted ms | measured ms | tape, ms "
    "| speed-up | first call over the tape's |\n|---|---|---|---|---|---|---|---|---|"
)


def _tape(function: Function, spec: tf.TensorSpec, vectorized: bool, xla: bool) -> Callable:
    @tf.function(input_signature=[spec], autograph=False, jit_compile=xla or None)
    def jacobian(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.batch_jacobian(y, x, experimental_use_pfor=vectorized)

    return jacobian


def _ways(
    function: Function, spec: tf.TensorSpec, rows: int, is_mapped: bool
) -> dict[str, Callable]:
    ways = {"tfjac": tfjac.prepare(function, batch=True, input_signature=[spec])}
    if is_mapped:
        ways["vectorized"] = _tape(function, spec, vectorized=True, xla=False)
    if rows <= _MOST_ROWS:
        ways["loop"] = _tape(function, spec, vectorized=False, xla=False)
    if XLA.value:
        ways["vectorized, XLA"] = _tape(function, spec, vectorized=True, xla=True)
    return ways


def measured(name: str, network: Network, batch: int, sizes: str) -> Row:
    """Returns the row of one network.

    Raises:
      AssertionError: the answers differ.
    """
    keras.backend.clear_session()
    function = network.make()
    random = np.random.default_rng(0)
    x = tf.constant((0.5 * random.normal(size=(batch, *network.shape))).astype(np.float32))
    spec = tf.TensorSpec([batch if sizes == "known" else None, *network.shape])
    is_mapped = batch > 1 or not network.unsafe_at_one
    ways = _ways(function, spec, function(x).shape[1:].num_elements(), is_mapped)
    first: dict[str, float] = {}
    answers: dict[str, np.ndarray] = {}
    for way, call in list(ways.items()):
        start = time.perf_counter()
        try:
            answers[way] = np.asarray(call(x))
        except tf.errors.OpError as error:
            print(f"{name}: {way} fails: {str(error).splitlines()[0]}", flush=True)
            del ways[way]
            continue
        first[way] = time.perf_counter() - start
    for way in _differing(answers):
        print(f"{name}: {way} gives another answer, and is left out", flush=True)
        del ways[way]
    (plan,) = _plans(function, spec)
    return Row(name, batch, sizes, plan.strategy.name, plan.seconds, first, _medians(ways, x))


def _differing(answers: dict[str, np.ndarray]) -> list[str]:
    """Returns the tape's ways that give another answer than ours, or raises if all of them do.

    Under a vectorized map some of TensorFlow's kernels are wrong at one example.
    """
    found = answers["tfjac"]
    differing = []
    for way, answer in answers.items():
        difference = np.abs(found - answer).max() / max(np.abs(found).max(), 1e-30)
        if not difference <= _TOLERANCE:
            differing.append(way)
    if len(differing) == len(answers) - 1:
        raise AssertionError(f"our answer differs from {' and '.join(differing)}")
    return differing


def _plans(function: Function, spec: tf.TensorSpec) -> Sequence[tfjac.Plan]:
    plans = []

    def traced(x):
        plans.extend(tfjac.plan(function(x), x, batch=True))

    tf.function(traced, autograph=False).get_concrete_function(spec)
    return plans


def _medians(ways: dict[str, Callable], x: tf.Tensor) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    begun = time.perf_counter()
    for number in range(ROUNDS.value):
        if number >= 3 and time.perf_counter() - begun > SECONDS.value:
            break
        for name, call in ways.items():
            start = time.perf_counter()
            call(x)
            tf.test.experimental.sync_devices()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def _summary(rows: Sequence[Row]) -> str:
    ratios = [row.ratio for row in rows]
    mean = math.exp(np.mean(np.log(ratios)))
    foreseen = [
        r.predicted / r.medians["tfjac"]
        for r in rows
        if r.sizes == "known" or r.batch == nominal.SIZE
    ]
    near = [0.5 <= ratio <= 2 for ratio in foreseen]
    known = {(r.network, r.batch): r.medians["tfjac"] for r in rows if r.sizes == "known"}
    lines = [
        f"{len(rows)} rows; speed-up over the best of the tape: geometric mean {mean:.2f}, least "
        f"{min(ratios):.2f}, {sum(r >= 0.95 for r in ratios)} at 0.95 or more.",
        f"Predicted within a factor of 2 of measured: {sum(near)} of {len(near)}.",
    ]
    pairs = [
        r.medians["tfjac"] / known[r.network, r.batch]
        for r in rows
        if r.sizes == "unknown" and (r.network, r.batch) in known
    ]
    if pairs:
        within = sum(pair <= 1.1 for pair in pairs)
        lines.append(f"Batch unknown within 10 % of known: {within} of {len(pairs)}.")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> None:
    """Runs what the flags say."""
    del argv
    names = [n for n in NETWORKS if not ONLY.value or any(part in n for part in ONLY.value)]
    if not names:
        raise app.UsageError(f"--only: there are {', '.join(NETWORKS)}")
    rows = []
    print(_HEADER, flush=True)
    for name in names:
        for batch in map(int, BATCHES.value):
            for sizes in SIZES.value:
                rows.append(measured(name, NETWORKS[name], batch, sizes))
                print(rows[-1].line(), flush=True)
    print(_summary(rows))
    if OUTPUT.value is not None:
        _write(pathlib.Path(OUTPUT.value), rows)


def _write(folder: pathlib.Path, rows: Sequence[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = [f"TensorFlow {tf.__version__}, Keras {keras.__version__}.", "", _HEADER]
    table += [row.line() for row in rows]
    (folder / "networks.md").write_text("\n".join([*table, "", _summary(rows), ""]))
    found = [dataclasses.asdict(row) for row in rows]
    (folder / "networks.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    app.run(main)
