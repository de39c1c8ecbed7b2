"""Who runs, and what: the peers besides tfjac, and the workloads as the engine takes them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.workloads import MODELS
from tfjac.bench.jobs import Peer, Task
from tfjac.bench.measurement import Workload

_TENSORFLOW = "tfjac.bench.tensorflow_peers"
PEERS = (
    Peer("tensorflow", _TENSORFLOW, (("school", "tensorflow"),)),
    Peer("by hand", _TENSORFLOW, (("school", "by hand"),)),
    Peer("jax", "benchmarks.jax_peer", needs="jax", loads_tensorflow=False),
    Peer("torch", "benchmarks.torch_peer", needs="torch", loads_tensorflow=False),
)


def ours(strategies: Sequence[str] = ()) -> Peer:
    """Returns tfjac as a peer, some of its strategies timed besides `auto`."""
    return Peer("tfjac", _TENSORFLOW, (("school", "tfjac"), ("strategies", tuple(strategies))))


def workload(name: str) -> Workload:
    """Returns a workload of the table."""
    model = MODELS[name]
    return Workload(Task("benchmarks.workloads", name), model.title, model.flops, model.heavy)
