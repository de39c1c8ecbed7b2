"""Every workload by every peer: `python -m benchmarks [--quick] [--workloads=lenet,decoder]`.

Takes about 20 minutes on two cores, under two with --quick. Exits with 1 where tfjac fails or its
answer differs from the others'.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Sequence

from absl import app, flags

from benchmarks import contest
from benchmarks.workloads import MODELS
from tfjac import strategies
from tfjac.bench import command

_QUICK = ("softmax", "tiny_1000", "layernorm", "stencil")

flags.DEFINE_list("workloads", ["*"], "Names or patterns of workloads; --list shows them.")
flags.DEFINE_list("peers", ["*"], "Names or patterns of peers besides tfjac; --list shows them.")
flags.DEFINE_bool("strategies", False, "Time every strategy of tfjac besides auto.")
flags.DEFINE_bool("quick", False, f"Few rounds of {', '.join(_QUICK)}, unless others are named.")
flags.DEFINE_bool("list", False, "List workloads and peers, and stop.")
command.define_flags("output/benchmarks")


def chosen(patterns: Sequence[str], names: Sequence[str], flag: str) -> list[str]:
    """Returns the names that match one of the patterns, in their order, or raises."""
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise app.UsageError(
                f"--{flag}: nothing is named {pattern}; there are {', '.join(names)}"
            )
    return [name for name in names if any(fnmatch.fnmatch(name, p) for p in patterns)]


def main(argv: Sequence[str]) -> int:
    """Runs what the flags say; returns the exit status."""
    del argv
    values = flags.FLAGS
    if values.list:
        for name, model in MODELS.items():
            print(f"{name:<18} {model.title}")
        print("peers:", ", ".join(peer.name for peer in contest.PEERS))
        return 0
    patterns, how = values.workloads, command.settings()
    if values.quick:
        how = dataclasses.replace(how, rounds=min(how.rounds, 5), seconds=min(how.seconds, 2.0))
        patterns = list(_QUICK) if patterns == ["*"] else patterns
    workloads = [contest.workload(name) for name in chosen(patterns, list(MODELS), "workloads")]
    others = [peer.name for peer in contest.PEERS]
    peers = [contest.ours(strategies.names()[1:] if values.strategies else ())]
    peers += [p for p in contest.PEERS if p.name in chosen(values.peers, others, "peers")]
    return command.run_and_report(workloads, peers, how)


if __name__ == "__main__":
    app.run(main)
