"""The benchmarks' engine: that it tells what happened, and compares before it times."""

from __future__ import annotations

import itertools
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tfjac.bench import agreement, limit, measurement, tables, team
from tfjac.bench.jobs import Peer, Task
from tfjac.bench.measurement import Settings, Workload
from tfjac.bench.records import Outcome, Ratio, Record, Report

TESTS = pathlib.Path(__file__).parent
ROOT = TESTS.parent


@pytest.fixture(autouse=True)
def _modules_of_the_tree(monkeypatch):
    # At the end, so that the installed package comes before the tree.
    monkeypatch.setattr(sys, "path", [*sys.path, str(TESTS), str(ROOT)])


def fake(*names, peer="fake"):
    return Peer(peer, "fake_peer", (("names", names),), "numpy", loads_tensorflow=False)


def race(*peers, **settings):
    how = {"rounds": 2, "seconds": 0.0, "fewest_rounds": 2, "timeout": 20.0, "keeping": (False,)}
    task = Workload(Task("nowhere", "a task"), "A task", flops=1e6)
    return measurement.run([task], peers, Settings(**{**how, **settings}))


def by_name(report):
    return {r.contender: r for outcome in report.outcomes for r in outcome.records}


def test_a_run_times_what_agrees_and_names_what_does_not():
    report = race(
        fake("baseline", "right", peer="tfjac"),
        fake("wrong", "right_too", "raises", "declines"),
    )
    found = by_name(report)
    assert {name: r.status for name, r in found.items()} == {
        "baseline": "ok",
        "right": "ok",
        "right_too": "ok",
        "wrong": "differs",
        "raises": "failed",
        "declines": "left out",
    }
    assert len(found["right"].seconds) == 2 and not found["wrong"].seconds
    assert found["raises"].message == "FloatingPointError: no derivative"
    assert "fake_peer.py" in found["raises"].details
    assert found["declines"].message == "would take about 99 s"
    assert found["right"].ops == 7 and found["right"].read_seconds == 0.5
    assert found["right"].answer_bytes == 48
    assert {r.contender for r in report.troubles()} == {"wrong", "raises"}


@pytest.mark.parametrize("fatal", ["dies", "dies_later"])
def test_a_process_that_dies_is_replaced_and_its_other_contenders_go_on(fatal):
    found = by_name(race(fake("right", fatal, "right_too")))
    assert found[fatal].status == "failed"
    assert found[fatal].message == "process of fake: killed by signal 9"
    assert len(found["right"].seconds) == len(found["right_too"].seconds) == 2


def test_a_contender_that_does_not_answer_is_given_up():
    found = by_name(race(fake("hangs", "right"), timeout=3.0))
    assert found["hangs"].message == "process of fake: no answer in 3 s"
    assert found["right"].is_timed


def test_a_contender_cannot_take_the_memory_of_the_machine():
    found = by_name(race(fake("greedy", "right")))
    assert found["greedy"].status == "failed" and "MemoryError" in found["greedy"].message
    assert found["right"].is_timed


def test_a_peer_that_is_not_installed_is_left_out_and_said_so():
    absent = Peer("absent", "absent_peer", needs="no_such_package", loads_tensorflow=False)
    report = race(fake("right"), absent)
    assert report.missing == {"absent": "no_such_package"}
    assert "left out: absent, for no_such_package is not installed" in tables.heading(report)


def test_a_peer_that_cannot_be_loaded_is_reported():
    broken = Peer("broken", "no_such_module", needs="numpy", loads_tensorflow=False)
    with pytest.raises(team.Failed, match="no_such_module"):
        race(broken)


def test_each_setting_of_host_memory_has_processes_of_its_own():
    report = race(fake("right"), keeping=(False, True))
    assert [outcome.kept for outcome in report.outcomes] == [False, True]
    assert all(r.kept == o.kept for o in report.outcomes for r in o.records)


def test_a_report_is_whole_on_disk_and_in_tables(tmp_path):
    report = race(fake("baseline", "right", peer="tfjac"), fake("right_too", "wrong"))
    # The contender by which tfjac is judged has its name.
    report.outcomes[0].records[1].contender = "tfjac"
    report.write_json(tmp_path / "deep" / "report.json")
    written = json.loads((tmp_path / "deep" / "report.json").read_text())
    assert written["outcomes"][0]["best_peer"] == "right_too"
    assert written["outcomes"][0]["speed_up"]["median"] > 0
    assert written["outcomes"][0]["records"][1]["over_floor"] > 0
    assert written["versions"]["fake"] == "1.0" and written["limit"]["warm_bytes"] > 0
    text = tables.markdown(report)
    assert "| A task | as is | " in text
    assert "- a task, wrong, memory as is: differs: differs from the others by" in text
    plot = pytest.importorskip("tfjac.bench.plot", reason="needs matplotlib")
    written = plot.write(report, tmp_path / "speed_up")
    assert [path.suffix for path in written] == [".png", ".svg"]
    assert all(path.stat().st_size > 1000 for path in written)


def record(contender, seconds, peer="tfjac", **fields):
    return Record("w", contender, peer, False, seconds=seconds, answer_bytes=8, **fields)


def test_ratios_are_taken_round_by_round():
    ratio = Ratio.of(record("a", [2.0, 6.0, 9.0]), record("b", [1.0, 2.0, 3.0]))
    assert ratio == Ratio(median=3.0, low=2.5, high=3.0)
    # A contender timed in one round only is compared with every round of the other.
    assert Ratio.of(record("a", [8.0]), record("b", [8.0, 2.0, 4.0])).median == 2.0
    # One that died on the way is compared in the rounds that it had.
    assert Ratio.of(record("a", [8.0, 8.0]), record("b", [4.0, 4.0, 1.0])).median == 2.0


def test_an_outcome_speaks_of_the_best_peer_that_answered_rightly():
    outcome = Outcome(
        "A",
        False,
        (
            record("baseline", [1.0], is_baseline=True),
            record("tfjac", [2.0]),
            record("tfjac xla", [0.5]),
            record("slow", [9.0], "other"),
            record("best", [3.0], "other"),
            record("wrong", [], "other", status="differs"),
            record("baseline", [0.1], "other", is_baseline=True),
        ),
        flops=100.0,
    )
    assert outcome.best_peer().contender == "best"
    assert outcome.speed_up().median == 1.5
    assert outcome.in_baselines(outcome.ours()).median == 2.0
    # 100 FLOPs at 100 per second and 8 bytes at 8 per second: two seconds.
    rates = limit.Limit(flops=100.0, fresh_bytes=1.0, warm_bytes=8.0)
    assert outcome.over_floor(outcome.ours(), rates) == 1.0


def test_a_run_in_which_tfjac_is_wrong_or_silent_is_not_right():
    rates = limit.Limit(1.0, 1.0, 1.0)

    def is_right(*rows):
        outcome = Outcome("A", False, rows, None)
        return Report("", "", {}, rates, {}, (outcome,)).is_ours_right()

    other = record("other", [1.0], "other")
    assert is_right(record("tfjac", [1.0]), other)
    assert is_right(record("tfjac", [1.0]), record("other", [], "other", status="failed"))
    assert not is_right(record("tfjac", [], status="differs"), other)
    assert not is_right(record("tfjac", [1.0]), record("tfjac xla", [], status="failed"))
    assert not is_right(other)


RIGHT = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)


def changed(change):
    wrong = RIGHT.copy()
    change(wrong)
    return wrong


@pytest.mark.parametrize(
    "wrong",
    [
        changed(lambda a: a.__setitem__((2, 1, 3), a[2, 1, 3] + 0.01)),
        RIGHT[..., ::-1],
        RIGHT[::-1],
        changed(lambda a: a.__setitem__((0, 0, 0), np.nan)),
        changed(lambda a: a.__setitem__((0, 0, 0), np.inf)),
        RIGHT.reshape(5, 4, 3),
        np.zeros_like(RIGHT),
    ],
    ids=["entry", "columns", "rows", "nan", "infinite", "shape", "zeros"],
)
def test_a_wrong_answer_is_found_whatever_is_wrong(wrong):
    answers = {"wrong": wrong, "one": RIGHT, "other": RIGHT * (1 + 1e-6)}
    found = agreement.differences({k: agreement.digest(a) for k, a in answers.items()})
    assert found["one"] <= agreement.TOLERANCE and found["other"] <= agreement.TOLERANCE
    assert found["wrong"] > agreement.TOLERANCE


def test_answers_of_zeros_agree():
    digest = agreement.digest(np.zeros((2, 0, 3)))
    assert agreement.differences({"a": digest, "b": digest}) == {"a": 0.0, "b": 0.0}
    assert agreement.differences({}) == {}


def test_the_rates_of_the_machine_are_positive():
    fresh, warm = limit.write_rates()
    assert fresh > 0 and warm > 0
    calls = []
    assert limit.matmul_flops(lambda size: lambda: calls.append(size)) > 0
    assert set(calls) == {limit.MATMUL_SIZE}


def test_the_cheapest_product_of_a_chain_is_that_of_brute_force():
    from benchmarks import floors

    def cheapest(shapes):
        if len(shapes) == 1:
            return 0
        return min(
            cheapest(shapes[:i] + [(shapes[i][0], shapes[i + 1][1])] + shapes[i + 2 :])
            + shapes[i][0] * shapes[i][1] * shapes[i + 1][1]
            for i in range(len(shapes) - 1)
        )

    random = np.random.default_rng(0)
    for length in range(2, 8):
        sizes = random.integers(1, 9, size=length).tolist()
        assert floors.dense_chain(sizes) == cheapest(list(itertools.pairwise(sizes)))
    # Two accumulated halves and one product, by hand.
    halves = 2 * 784 * 256 * 32 + 784 * 32 * 784
    assert floors.dense_chain([784, 256, 32, 256, 784]) == halves


def test_one_workload_of_the_table_from_start_to_end():
    from benchmarks import contest

    peers = [contest.ours(), *contest.PEERS]
    how = Settings(rounds=1, seconds=0.0, fewest_rounds=1, keeping=(False,))
    report = measurement.run([contest.workload("tiny_100")], peers, how)
    (outcome,) = report.outcomes
    timed = {r.contender for r in outcome.records if r.is_timed}
    assert timed >= {"tfjac", "tfjac xla", "tf", "tf xla", "tf loop", "tf stack", "baseline"}
    assert not report.troubles() and report.is_ours_right()
    for r in outcome.records:
        assert r.build_seconds > 0 and r.first_seconds > 0 and len(r.seconds) == 1
    ours = outcome.ours()
    assert outcome.speed_up() and ours.read_seconds > 0 and ours.ops > 0
    plain = [r for r in outcome.records if r.contender == "tfjac"]
    assert all(r.predicted_seconds > 0 for r in plain)
    assert report.versions.keys() >= {"python", "tfjac", "tensorflow"}


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "torch"])
def test_every_workload_has_its_net_in_every_framework(framework):
    pytest.importorskip(framework)
    from benchmarks.workloads import MODELS, job

    for name in MODELS:
        made = job(name, framework)
        y = made.function(made.weights, made.x)
        assert not made.batch or y.shape[0] == made.x.shape[0]


def bench(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "tfjac", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def test_a_function_of_the_users_own_from_the_command_line(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import tensorflow as tf\n\n"
        "def squares(x):\n    return tf.stack([x[:, 0] ** 2, x[:, 1]], 1)\n"
    )
    done = bench(
        "bench", "--function=mine:squares", "--shape=3,2", "--batch", "--rounds=1",
        "--memory=as_is", "--strategies=unstack,forward", "--output=here",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    written = json.loads((tmp_path / "here" / "report.json").read_text())
    status = {r["contender"]: r["status"] for r in written["outcomes"][0]["records"]}
    assert status == dict.fromkeys(
        ["baseline", "tfjac", "tfjac xla", "tfjac unstack", "tfjac forward", "tf", "tf xla"]
        + ["tf loop", "tf stack"],
        "ok",
    )
    assert {p.name for p in (tmp_path / "here").iterdir()} == {
        "report.json", "report.md", "speed_up.png", "speed_up.svg",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bench", "--function=nothing:here", "--shape=2"], "No module named 'nothing'"),
        (["bench", "--function=math:pi", "--shape=2"], "it is a float"),
        (["bench", "--function=math:sin"], "give either --shape or --input"),
        (["bench", "--shape=2"], "--function"),
        (["dance"], "usage: python -m tfjac COMMAND"),
        ([], "usage: python -m tfjac COMMAND"),
    ],
)
def test_what_the_command_line_cannot_run_it_says(arguments, said):
    done = bench(*arguments)
    assert done.returncode != 0 and said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_rules_and_how_far_they_cover_keras_are_told():
    done = bench("rules")
    assert done.returncode == 0, done.stderr[-2000:]
    first, second, *rest = done.stdout.splitlines()
    assert int(first.split()[0]) >= 150
    layers, op_types, covered = (int(word) for word in second.split() if word.isdecimal())
    assert layers >= 100 and op_types == covered
    assert not [line for line in rest if line.startswith("no rule")]


def test_what_the_command_needs_is_told(monkeypatch):
    from tfjac import bench, cli

    monkeypatch.setitem(sys.modules, "tfjac.bench.command", None)
    monkeypatch.delattr(bench, "command", raising=False)  # there where another test imported it
    with pytest.raises(SystemExit, match=r"pip install 'tfjac\[bench\]'"):
        cli._bench([])


def test_help_is_no_error():
    done = bench("--help")
    assert done.returncode == 0 and "bench" in done.stdout


def run_derived(program, folder, *arguments):
    """Returns the finished process of a program that can import the benchmarks of the tree."""
    # From another folder, so that the installed package is imported and not the tree's.
    start = f"import sys; sys.path.append({str(ROOT)!r}); from benchmarks import derived\n"
    return subprocess.run(
        [sys.executable, "-c", start + program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_what_is_made_of_jacobians_is_timed_way_by_way(tmp_path):
    done = run_derived(
        "from absl import app; app.run(derived.main)",
        tmp_path,
        "--only=dense and",
        "--rounds=3",
        f"--output={tmp_path}",
    )
    assert done.returncode == 0, done.stderr
    (times,) = json.loads((tmp_path / "derived.json").read_text()).values()
    assert {len(each) for each in times.values()} == {3}
    assert (tmp_path / "derived.md").read_text().count("| tfjac |") == 1


def test_answers_that_disagree_are_not_timed(tmp_path):
    program = """
import numpy as np
ways = {"a": lambda: np.ones(2), "b": lambda: np.zeros(2)}
derived.check_agreement(derived.Workload("planted", ways, ("a", "b")))
"""
    assert "planted: b and a disagree" in run_derived(program, tmp_path).stderr
