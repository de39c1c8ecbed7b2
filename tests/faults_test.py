"""Load and faults: many threads, many calls, exceptions and interrupts, workers, devices."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac

ROOT = pathlib.Path(tfjac.__file__).parent.parent
# Those that take any model; structure_test.py is about the other.
STRATEGIES = [name for name in tfjac.strategies.names() if name != "structural"]


def by_hand(x):
    """Returns the Jacobian of tanh(x) * x."""
    t = np.tanh(x)
    return np.diag(t + x * (1 - t**2))


class Counted:
    """tanh(x) * x, and how often Python ran it."""

    def __init__(self):
        self.traces = 0

    def __call__(self, x):
        self.traces += 1
        return tf.tanh(x) * x


def run_in_threads(work, count=8):
    """Runs `work(k)` in threads that start at once; raises what any of them raises."""
    gate = threading.Barrier(count)

    def run(k):
        gate.wait()
        work(k)

    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        list(threads.map(run, range(count)))


# Threads.


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_threads_that_prepare_and_call_several_signatures_build_each_once(strategy):
    fn, sizes = Counted(), (2, 3, 4)

    def work(k):
        for turn in range(6):
            x = array(sizes[(k + turn) % 3], seed=k)
            np.testing.assert_allclose(tfjac.prepare(fn, strategy=strategy)(x), by_hand(x))

    run_in_threads(work)
    info = tfjac.prepare(fn, strategy=strategy).cache_info()
    assert fn.traces == info.misses == info.currsize == 3
    assert info.hits == 8 * 6 - 3


def test_threads_with_functions_of_their_own_do_not_disturb_one_another():
    def work(k):
        for turn in range(4):
            scale = float(10 * k + turn + 1)
            x = array(3, seed=k)
            j = tfjac.prepare(lambda z, s=scale: s * z**2)(x)
            np.testing.assert_allclose(j, np.diag(2 * scale * x))

    run_in_threads(work)


def test_threads_may_clear_the_cache_while_others_call():
    fn = Counted()
    jac = tfjac.prepare(fn)

    def work(k):
        for turn in range(10):
            x = array(3, seed=k)
            np.testing.assert_allclose(jac(x), by_hand(x))
            if k == 0 and turn % 3 == 0:
                jac.cache_clear()

    run_in_threads(work)


def test_threads_that_trace_functions_of_their_own_may_share_a_prepared_jacobian():
    jac = tfjac.prepare(lambda z: tf.tanh(z) * z)

    def work(k):
        x = array(3, seed=k)
        inside = tf.function(lambda z: jac(z) + float(k))
        for _ in range(3):
            np.testing.assert_allclose(inside(tf.constant(x)), by_hand(x) + k)
            np.testing.assert_allclose(jac(x), by_hand(x))

    run_in_threads(work)


# Load.


def resident_bytes():
    status = pathlib.Path("/proc/self/statm")
    if not status.exists():
        pytest.skip("the system does not tell how much memory a process holds")
    return int(status.read_text().split()[1]) * 4096


@pytest.mark.parametrize("strategy", ["auto", "vectorized"])
def test_ten_thousand_calls_hold_no_more_memory_than_the_first(strategy):
    w = tf.Variable(array(16, 16))
    jac = tfjac.prepare(lambda x: tf.tanh(x @ w), batch=True, strategy=strategy)
    x = tf.constant(array(8, 16))
    for _ in range(500):
        jac(x)
    gc.collect()
    objects, held = len(gc.get_objects()), resident_bytes()
    (built,) = jac._cache._entries.values()
    ops = len(built.concrete.graph.get_operations())
    for _ in range(10_000):
        jac(x)
    gc.collect()
    assert len(gc.get_objects()) - objects < 100
    # A Jacobian of this size has 16 KiB: one in a thousand kept would be seen.
    assert resident_bytes() - held < 16 * 2**20
    assert len(built.concrete.graph.get_operations()) == ops
    assert jac.cache_info()[:2] == (10_499, 1)


def test_a_thousand_throw_away_functions_leave_nothing_alive():
    functions, graphs, x = [], [], np.array([0.3, 0.6])

    def once(k):
        def fn(z):
            graphs.append(weakref.ref(tf.compat.v1.get_default_graph()))
            return z * k

        functions.append(weakref.ref(fn))
        return tfjac.prepare(fn)(x)

    for k in range(1, 1001):
        j = once(float(k))
        if k % 100 == 0:
            np.testing.assert_allclose(j, k * np.eye(2))
    gc.collect()
    assert len(functions) == len(graphs) == 1000
    assert not any(reference() for reference in functions)
    assert not any(reference() for reference in graphs)


def test_many_signatures_of_one_function_keep_no_more_graphs_than_the_cache_holds():
    graphs = []

    def fn(z, scale):
        graphs.append(weakref.ref(tf.compat.v1.get_default_graph()))
        return scale * z

    jac = tfjac.prepare(fn, strategy="unstack")
    most = jac.cache_info().maxsize
    for k in range(most + 20):
        np.testing.assert_allclose(jac(np.ones(2), k), k * np.eye(2))
    gc.collect()
    assert sum(reference() is not None for reference in graphs) == most
    assert jac.cache_info().currsize == most


# Exceptions and interrupts.


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_raised_while_tracing_leaves_nothing_and_the_next_call_is_right(error, strategy):
    raising = [True]

    def fn(x):
        y = tf.tanh(x)
        if raising[0]:
            raise error("stop")
        return y * x

    jac, x = tfjac.prepare(fn, strategy=strategy), array(3)
    for _ in range(3):
        with pytest.raises(error, match="stop"):
            jac(x)
    assert jac.cache_info()[:2] == (0, 0) and jac.cache_info().currsize == 0
    assert tf.executing_eagerly()
    raising[0] = False
    np.testing.assert_allclose(jac(x), by_hand(x))


def test_an_exception_in_one_thread_does_not_keep_the_others_from_building():
    failed, seen = [], []

    def fn(x):
        if not failed:
            failed.append(True)
            raise RuntimeError("the first one")
        return tf.tanh(x) * x

    jac = tfjac.prepare(fn)

    def work(k):
        x = array(3, seed=k)
        try:
            np.testing.assert_allclose(jac(x), by_hand(x))
        except RuntimeError as error:
            seen.append(str(error))

    run_in_threads(work)
    assert len(seen) == 1 and "the first one" in seen[0]
    assert jac.cache_info()[:2] == (6, 1)


def test_an_exception_in_the_gradient_or_at_run_time_leaves_the_cache_usable():
    @tf.custom_gradient
    def broken(x):
        def gradient(upstream):
            if fail[0]:
                raise ValueError("no gradient today")
            return 5.0 * upstream

        return tf.identity(x), gradient

    def checked(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x)]):
            return x**2

    fail = [True]
    jac, x = tfjac.prepare(broken), np.array([1.0, 2.0])
    with pytest.raises(ValueError, match="no gradient today"):
        jac(x)
    fail[0] = False
    np.testing.assert_allclose(jac(x), 5 * np.eye(2))
    jac = tfjac.prepare(checked)
    for _ in range(2):
        np.testing.assert_allclose(jac(x), np.diag(2 * x))
        with pytest.raises(tf.errors.InvalidArgumentError):
            jac(-x)
    assert jac.cache_info().misses == 1


@contextlib.contextmanager
def interrupted_after(seconds):
    """Sends this process the signal of Ctrl-C after a while."""
    timer = threading.Timer(seconds, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def test_ctrl_c_during_a_run_leaves_the_cache_usable():
    """Python sees it when TensorFlow returns; until then calls go on."""

    def fn(x, turns):
        return tf.while_loop(lambda i, h: i < turns, lambda i, h: (i + 1, tf.sin(h)), (0, x))[1]

    jac, x, few = tfjac.prepare(fn, strategy="while_loop"), array(3), tf.constant(1)
    np.testing.assert_allclose(jac(x, few), np.diag(np.cos(x)))
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.2):
        while True:
            jac(x, tf.constant(1000))
    np.testing.assert_allclose(jac(x, few), np.diag(np.cos(x)))
    assert jac.cache_info().misses == 1


def test_ctrl_c_while_building_leaves_the_cache_usable():
    waiting = [True]

    def fn(x):
        y = tf.tanh(x)
        while waiting[0]:
            time.sleep(0.01)
        return y * x

    jac, x = tfjac.prepare(tf.autograph.experimental.do_not_convert(fn)), array(3)
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.2):
        jac(x)
    waiting[0] = False
    np.testing.assert_allclose(jac(x), by_hand(x))
    run_in_threads(lambda k: np.testing.assert_allclose(jac(x), by_hand(x)), 2)
    assert jac.cache_info().currsize == 1


# Processes.

_WORKER = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import multiprocessing, sys
import numpy as np
import tensorflow as tf
import tfjac

def square(x):
    return x**2

def work(k):
    x = np.array([1.0, 2.0]) * k
    return tfjac.prepare(square, strategy="unstack")(x).numpy()

if __name__ == "__main__":
    start = sys.argv[1]
    if start == "spawn":
        work(1)  # TensorFlow runs here already
    with multiprocessing.get_context(start).Pool(2) as pool:
        for k, j in enumerate(pool.map(work, range(4))):
            np.testing.assert_array_equal(j, np.diag(2.0 * k * np.array([1.0, 2.0])))
    np.testing.assert_array_equal(work(3), np.diag([6.0, 12.0]))
    print("done")
"""


def run_program(text, folder, *arguments):
    """Returns what a program prints; raises where it fails."""
    path = folder / "program.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_forked_before_the_first_use_and_spawned_ones_give_the_right_values(
    start, tmp_path
):
    assert "done" in run_program(_WORKER, tmp_path, start)


_DETERMINISTIC = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import hashlib
import numpy as np
import tensorflow as tf
import tfjac

tf.config.experimental.enable_op_determinism()
tf.keras.utils.set_random_seed(7)
layers = tf.keras.layers
model = tf.keras.Sequential(
    [tf.keras.Input((8, 8, 2)), layers.Conv2D(4, 3), layers.MaxPooling2D(), layers.ReLU()]
    + [layers.Flatten(), layers.Dense(16, "tanh"), layers.Dense(5, "softmax")]
)
x = np.random.default_rng(3).normal(size=[6, 8, 8, 2]).astype(np.float32)

def picked(z):
    return tf.math.unsorted_segment_sum(tf.gather(z, [0, 2, 2, 1, 0]), [0, 1, 0, 2, 1], 3) ** 2

for strategy in tfjac.strategies.names():
    if strategy == "structural":
        continue
    found = [tfjac.prepare(model, batch=True, strategy=strategy)(x).numpy() for _ in range(3)]
    assert all(np.array_equal(found[0], other) for other in found)
    rows = tfjac.prepare(picked, strategy=strategy)(x[:, 0, 0]).numpy()
    print(strategy, hashlib.sha256(found[0].tobytes() + rows.tobytes()).hexdigest())
"""


def test_with_op_determinism_results_are_the_same_bit_for_bit_from_run_to_run(tmp_path):
    first, second = (run_program(_DETERMINISTIC, tmp_path) for _ in range(2))
    assert len(first.splitlines()) == len(STRATEGIES)
    assert first == second


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_calls_of_one_process_are_the_same_bit_for_bit(strategy):
    w, x = array(40, 30, dtype=np.float32), array(50, 40, dtype=np.float32)
    jac = tfjac.prepare(lambda z: tf.tanh(z @ tf.constant(w)), batch=True, strategy=strategy)
    first = jac(x).numpy()
    for _ in range(10):
        np.testing.assert_array_equal(jac(x), first)
