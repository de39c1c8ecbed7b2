"""Worker processes, one for each peer, all alive together; a dead or silent one is replaced."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from tfjac.bench import child
from tfjac.bench.jobs import Peer
from tfjac.bench.worker import Failure, Hello


class Failed(Exception):  # noqa: N818 (named for what it carries)
    """A request that a worker could not do.

    Args:
      failure: why.
    """

    def __init__(self, failure: Failure):
        super().__init__(failure.message)
        self.failure = failure


class Worker:
    """One peer's process.

    Args:
      peer: whose it is.
      kept: whether freed memory is to be kept.
      environment: variables to set for it.
    """

    def __init__(self, peer: Peer, kept: bool, environment: Mapping[str, str]):
        self.peer = peer
        self.kept = kept
        # Whether the process was started since this was last set to False: it holds no task then.
        self.has_forgotten = True
        self._environment = {**os.environ, **environment}
        self._start()

    def hello(self, timeout: float) -> Hello:
        """Returns the first word of the process, which comes once the framework is loaded."""
        hello = self._reply(timeout)
        self._has_greeted = True
        return hello

    def ask(self, method: str, *arguments: Any, timeout: float) -> Any:
        """Returns what a method of the worker returns; raises Failed where it cannot.

        Args:
          method: of `worker.Worker`.
          *arguments: for it.
          timeout: seconds to wait; a process that is silent for longer is replaced.
        """
        if not self._has_greeted:
            self.hello(timeout)
        try:
            self._connection.send((method, arguments))
        except OSError:
            self._replace("ended before it was asked")
        return self._reply(timeout)

    def close(self) -> None:
        """Ends the process."""
        self._connection.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _start(self) -> None:
        self._has_greeted = False
        self.has_forgotten = True
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [
                sys.executable,
                child.__file__,
                str(theirs.fileno()),
                str(self.kept),
                str(self.peer.loads_tensorflow),
                self.peer.module,
            ],
            env=self._environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        theirs.close()
        self._connection = Connection(ours.detach())

    def _reply(self, timeout: float) -> Any:
        try:
            if not self._connection.poll(timeout):
                self._replace(f"no answer in {timeout:.0f} s")
            done, result = self._connection.recv()
        except (EOFError, OSError):
            self._process.wait()
            self._replace(_ending(self._process.returncode))
        if not done:
            raise Failed(result)
        return result

    def _replace(self, why: str) -> None:
        """Starts the process anew, and raises."""
        self._process.kill()
        self._process.wait()
        failure = Failure(f"process of {self.peer.name}: {why}", self._end_of_log())
        self.close()
        self._start()
        raise Failed(failure)

    def _end_of_log(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4000:].decode(errors="replace")


def environment() -> dict[str, str]:
    """Returns what to set for worker processes: where to find modules, and to be quiet."""
    here = [str(pathlib.Path.cwd()), *filter(None, sys.path)]
    return {
        "PYTHONPATH": os.pathsep.join(here),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
