"""A peer of the benchmarks made of NumPy, with a contender for everything that can go wrong."""

import os
import signal
import time

import numpy as np

from tfjac.bench.jobs import Built, Contender, LeftOut

ANSWER = np.arange(12, dtype=np.float32).reshape(3, 4)


def contenders(task, names):
    del task
    return [Contender(name, globals()[f"_{name}"], name == "baseline") for name in names]


def versions():
    return {"fake": "1.0"}


def as_numpy(answer):
    return answer


def matmul(size):
    return lambda: size


def release():
    pass


def _baseline():
    return Built(lambda: ANSWER)


def _right():
    return Built(lambda: ANSWER.copy(), ops=lambda: 7, read_seconds=lambda: 0.5)


def _right_too():
    return _right()


def _wrong():
    return Built(lambda: ANSWER[:, ::-1].copy())


def _raises():
    raise FloatingPointError("no derivative\nof this")


def _declines():
    raise LeftOut("would take about 99 s")


def _dies():
    os.kill(os.getpid(), signal.SIGKILL)


def _dies_later():
    calls = []

    def call():
        calls.append(1)
        if len(calls) > 2:  # the first call, and the one whose memory is measured
            os.kill(os.getpid(), signal.SIGKILL)
        return ANSWER

    return Built(call)


def _hangs():
    time.sleep(60)


def _greedy():
    return Built(lambda: np.ones(2**40, np.uint8))
