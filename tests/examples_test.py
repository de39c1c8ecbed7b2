"""The example scripts end to end, and where their digits come from."""

from __future__ import annotations

import os
import pathlib
import re
import socket
import subprocess
import sys
import urllib.error

import numpy as np
import pytest
import tensorflow as tf

import tfjac

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"

pytest.importorskip("rich")
sklearn_datasets = pytest.importorskip("sklearn.datasets")
matplotlib_image = pytest.importorskip("matplotlib.image")


@pytest.fixture
def digits(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import digits

    return digits


@pytest.fixture
def mnist_npz(tmp_path, digits):
    """A file as Keras keeps it, with real digits in it: those of scikit-learn."""
    small = sklearn_datasets.load_digits()
    images = digits.enlarged(small.images[:400] * (255 / 16))
    y = small.target[:400].astype(np.uint8)
    path = tmp_path / "mnist.npz"
    np.savez(path, x_train=images[:300], y_train=y[:300], x_test=images[300:], y_test=y[300:])
    return path


def run(*arguments, **environment):
    """Returns the finished process of the main example."""
    return run_script("mnist_jacobian.py", "--runs=2", *arguments, **environment)


def run_script(script, *arguments, **environment):
    """Returns the finished process of an example."""
    python_path = os.pathsep.join(
        [str(pathlib.Path(tfjac.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    return subprocess.run(
        [sys.executable, str(EXAMPLES / script), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": python_path, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def rows(output):
    """Returns the cells of the table's rows by strategy."""
    table = output[output.index("difference") :]
    split = (re.split(r"\s{2,}", line.strip()) for line in table.splitlines())
    return {cells[0]: cells[1:] for cells in split if cells[0] in tfjac.strategies.names()}


def check_row(cells, shape):
    """Raises unless the cells are figures of a Jacobian of that shape, equal to unstack's."""
    build, ops, first, median, got_shape, difference = cells
    assert float(build) >= 0 and int(ops.replace(",", "")) > 0
    assert float(first.replace(",", "")) > 0 and float(median.replace(",", "")) > 0
    assert got_shape == shape
    assert float(difference) < 1e-4


def check_picture(path):
    """Raises unless there is a picture at `path` that shows something."""
    pixels = matplotlib_image.imread(path)
    assert min(pixels.shape[:2]) > 300
    assert len(np.unique(pixels.reshape([-1, pixels.shape[2]]), axis=0)) > 100


def check_fails_in_one_line(process, *words):
    """Raises unless the process failed with one line that has those words, and no traceback."""
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    last = process.stderr.strip().splitlines()[-1]
    assert all(word in last for word in ("mnist_jacobian.py:", *words)), last


def test_each_strategy_has_a_row_and_agrees_with_unstack(mnist_npz, tmp_path):
    process = run(
        "--hidden=16,16",
        "--batch_size=8",
        f"--data={mnist_npz}",
        f"--output_dir={tmp_path / 'out'}",
    )
    assert process.returncode == 0, process.stderr
    found = rows(process.stdout)
    assert list(found) == [s.name for s in tfjac.strategies.STRATEGIES]
    assert found.pop("structural")[0].startswith("refused: ")
    for cells in found.values():
        check_row(cells, "(8, 10, 784)")
    assert str(mnist_npz) in process.stdout
    assert (
        "plan of auto: Jacobian with 1 leading axis apart of (8, 10) by (8, 784)" in process.stdout
    )
    assert re.search(r"forward pass alone: median \d+\.\d+ ms", process.stdout)
    assert "\r" not in process.stdout and "\x1b" not in process.stdout
    check_picture(tmp_path / "out" / "saliency.png")


def test_the_full_job_has_a_row_for_each_strategy_too(mnist_npz, tmp_path):
    process = run(
        "--full",
        "--batch_size=6",
        "--hidden=8,8",
        f"--data={mnist_npz}",
        f"--output_dir={tmp_path}",
    )
    assert process.returncode == 0, process.stderr
    found = rows(process.stdout)
    assert found.pop("structural")[0].startswith("refused: ")
    assert list(found) == ["unstack", "while_loop", "vectorized", "forward", "cross_country"]
    for cells in found.values():
        check_row(cells, "(6, 1, 6, 784)")
    assert "784-8-8-1, sigmoid" in process.stdout
    check_picture(tmp_path / "saliency.png")


def test_one_strategy_with_its_options_and_without_a_network(tmp_path):
    # Nothing listens at the proxy, and nothing is cached in an empty home.
    nowhere = "http://127.0.0.1:9"
    process = run(
        "--strategy=vectorized",
        "--chunk_size=2",
        "--num_outputs=3",
        "--hidden=16",
        "--batch_size=8",
        "--activation=relu",
        f"--output_dir={tmp_path}",
        KERAS_HOME=str(tmp_path / "keras"),
        https_proxy=nowhere,
        HTTPS_PROXY=nowhere,
        no_proxy="",
        NO_PROXY="",
    )
    assert process.returncode == 0, process.stderr
    found = rows(process.stdout)
    assert list(found) == ["vectorized"]
    check_row(found["vectorized"], "(8, 3, 784)")
    assert "unstack was built for the differences only" in process.stdout
    assert "data: scikit-learn's digits" in process.stdout
    assert "784-16-10, relu" in process.stdout
    check_picture(tmp_path / "saliency.png")


def test_a_strategy_that_refuses_has_a_row_with_the_reason(mnist_npz, tmp_path):
    process = run(
        "--strategy=structural",
        "--hidden=16",
        "--batch_size=8",
        f"--data={mnist_npz}",
        f"--output_dir={tmp_path}",
    )
    assert process.returncode == 0, process.stderr
    assert rows(process.stdout)["structural"][0].startswith("refused: ")


def test_the_difference_is_from_the_first_jacobian_and_keeps_nan(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import measuring

    first_seen = measuring.FirstSeen()
    assert first_seen.difference(tf.zeros([2, 3])) == 0
    assert first_seen.difference(tf.constant([[0.0, 0.0, 0.0], [0.0, -2.0, 0.0]])) == 2
    assert np.isnan(first_seen.difference(tf.constant([[np.nan, 0.0, 0.0], [0.0, 1.0, 0.0]])))


# The smaller examples: whether they are about digits, flags that make them quick, what they check,
# and a figure that they print.
SMALLER = {
    "contractive_autoencoder": (
        True,
        ["--steps=20"],
        ["||J||_F^2 by its closed form", "... by the singular values"] * 2,
        r"contractive: squared error of a pixel 0\.\d+, ",
    ),
    "decoder_metric": (
        True,
        ["--steps=20", "--side=40"],
        ["volume by differences, relative", "volume by singular values, relative"],
        r"volume over the plane: median \d+",
    ),
    "gauss_newton": (
        False,
        [],
        [
            "parameters by least_squares, relative",
            "parameters by the true ones, in standard deviations",
        ],
        r"\d+ steps, \d+ Jacobians of scipy",
    ),
    "jsma": (
        True,
        ["--steps=60", "--each=1", "--most_changed=0.05"],
        [
            "Jacobian by that of a tape, relative",
            "changed images not taken for their targets",
            "most changed, fraction of pixels",
        ],
        r"90 attacks in \d+\.\d s: success [1-9]\d*\.\d\d%",
    ),
    "unit_determinant": (
        False,
        ["--steps=300"],
        ["det J by areas of cells"] * 2,
        r"bent, \|det J\| = 1: \|det J\| (0\.9|1\.0)\d+ on average",
    ),
}


@pytest.mark.parametrize("name", SMALLER)
def test_a_smaller_example_passes_its_checks_and_draws(name, mnist_npz, tmp_path):
    takes_digits, arguments, checks, figure = SMALLER[name]
    data = [f"--data={mnist_npz}"] if takes_digits else []
    process = run_script(f"{name}.py", f"--output_dir={tmp_path}", *data, *arguments)
    assert process.returncode == 0, process.stderr
    assert re.findall(r"check passed: (.+): \S+, at most \S+ wanted", process.stdout) == checks
    assert re.search(figure, process.stdout), process.stdout
    assert f"picture: {tmp_path / name}.png" in process.stdout
    check_picture(tmp_path / f"{name}.png")


def test_each_example_is_tested():
    programs = {p.stem for p in EXAMPLES.glob("*.py") if "__main__" in p.read_text()}
    assert programs == {"mnist_jacobian", *SMALLER}


def test_a_check_that_fails_ends_the_program(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import program

    program.check("one by the other", 0.5, 1)
    for difference in (2.0, float("nan")):
        with pytest.raises(SystemExit, match="check failed: one by the other"):
            program.check("one by the other", difference, 1)


def test_a_missing_file_fails_in_one_line(tmp_path):
    path = tmp_path / "none.npz"
    check_fails_in_one_line(run(f"--data={path}"), str(path), "No such file")


def test_options_that_contradict_fail_before_training():
    check_fails_in_one_line(run("--strategy=unstack", "--chunk_size=2"), "`chunk_size`")


def test_an_unknown_activation_is_refused_by_name():
    process = run("--activation=sigmod")
    assert process.returncode == 1 and "activation of Keras" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    "content",
    [
        {"x_train": np.zeros([2, 28, 28], np.uint8)},
        {"y_train": np.zeros([3], np.uint8)},
        {"x_test": np.zeros([2, 8, 8], np.uint8)},
        {"y_test": np.full([2], 10, np.uint8)},
        {"x_test": np.zeros([2, 28, 28], np.float32)},
        {"y_train": np.array([None, None])},
    ],
    ids=["missing_keys", "count", "size", "label", "dtype", "objects"],
)
def test_a_file_that_is_no_mnist_is_refused(digits, tmp_path, content):
    good = {
        "x_train": np.zeros([2, 28, 28], np.uint8),
        "y_train": np.zeros([2], np.uint8),
        "x_test": np.zeros([2, 28, 28], np.uint8),
        "y_test": np.zeros([2], np.uint8),
    }
    path = tmp_path / "mnist.npz"
    np.savez(path, **content if list(content) == ["x_train"] else {**good, **content})
    with pytest.raises(digits.DataError, match="mnist.npz"):
        digits.load(str(path))


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_npz_is_refused(digits, tmp_path, content):
    path = tmp_path / "mnist.npz"
    path.write_bytes(content)
    with pytest.raises(digits.DataError, match="cannot be read as an npz file"):
        digits.load(str(path))


def test_an_array_file_is_refused(digits, tmp_path):
    path = tmp_path / "mnist.npy"
    np.save(path, np.zeros([2, 28, 28], np.uint8))
    with pytest.raises(digits.DataError, match="is one array, not an npz file"):
        digits.load(str(path))


def as_keras_does():
    try:
        raise urllib.error.URLError("no route")
    except urllib.error.URLError as error:
        raise Exception(f"URL fetch failure: {error.reason}")  # noqa: B904


def silent():
    raise TimeoutError("timed out")


@pytest.mark.parametrize("load_data", [as_keras_does, silent])
def test_without_a_network_the_digits_are_scikit_learns_and_say_so(digits, monkeypatch, load_data):
    monkeypatch.setattr(tf.keras.datasets.mnist, "load_data", load_data)
    before = socket.getdefaulttimeout()
    found = digits.load()
    assert socket.getdefaulttimeout() == before
    assert found.name == "scikit-learn's digits" and "could not be downloaded" in found.source
    assert found.x_train.shape == (1500, 784) and found.x_test.shape == (297, 784)
    assert found.x_train.min() == 0 and found.x_train.max() == 1
    assert set(found.y_train) == set(range(10))


def test_other_errors_of_keras_are_not_taken_for_a_missing_network(digits, monkeypatch):
    def broken():
        raise Exception("something else")

    monkeypatch.setattr(tf.keras.datasets.mnist, "load_data", broken)
    with pytest.raises(Exception, match="something else"):
        digits.load()


def test_without_a_network_and_scikit_learn_the_message_says_what_to_do(digits, monkeypatch):
    monkeypatch.setattr(tf.keras.datasets.mnist, "load_data", as_keras_does)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(digits.DataError, match="--data=mnist.npz, or pip install"):
        digits.load()
