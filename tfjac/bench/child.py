"""Entry of a worker process, run as `child.py connection kept loads_tensorflow module`."""

import importlib
import os
import pathlib
import resource
import sys
import types
from multiprocessing.connection import Connection

# One process may take a third of the memory: they are all alive together.
_MEMORY_SHARE = 3


def main(connection: str, kept: str, loads_tensorflow: str, module: str) -> None:
    """Serves requests until the connection closes.

    Args:
      connection: file descriptor of the connection.
      kept: "True" to keep freed memory.
      loads_tensorflow: "False" where the process must stay free of TensorFlow.
      module: the peer's.
    """
    if loads_tensorflow == "False":
        # The package without its face, which imports TensorFlow: two frameworks in one process
        # fight over threads and memory.
        package = types.ModuleType("tfjac")
        package.__path__ = [str(pathlib.Path(__file__).parents[1])]
        sys.modules["tfjac"] = package
    _limit_memory()
    host_memory = importlib.import_module("tfjac.host_memory")
    is_kept = kept == "True" and host_memory.keep_freed_memory()
    worker = importlib.import_module("tfjac.bench.worker")
    worker.serve(Connection(int(connection)), module, is_kept)


def _limit_memory() -> None:
    """Bounds the process's memory, so that a greedy contender fails rather than the machine."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    resource.setrlimit(resource.RLIMIT_DATA, (physical // _MEMORY_SHARE,) * 2)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules are not to be found by their bare names
    main(*sys.argv[1:])
