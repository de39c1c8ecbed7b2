"""The vocabulary of the nets in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

einsum = torch.einsum
exp = torch.exp
gelu = functional.gelu
matvec = torch.mv
mean = torch.mean
relu = torch.relu
sigmoid = torch.sigmoid
tanh = torch.tanh


def tensor(array: np.ndarray) -> torch.Tensor:
    """Returns an array as a float32 tensor."""
    return torch.tensor(array, dtype=torch.float32)


weight = tensor


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Returns the softmax over the last axis."""
    return torch.softmax(x, -1)


def layer_norm(x: torch.Tensor, gain: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Returns x normalized over its last axis."""
    return functional.layer_norm(x, x.shape[-1:], gain, offset, 1e-3)


def reshape(x: torch.Tensor, old: tuple[int, ...], new: tuple[int, ...]) -> torch.Tensor:
    """Returns x with its last axes, of sizes `old`, as axes of sizes `new`."""
    return x.reshape(*x.shape[: x.ndim - len(old)], *new)


def as_image(x: torch.Tensor) -> torch.Tensor:
    """Returns pictures with an axis of channels, where the framework has it."""
    return x[..., None, :, :]


def flatten_image(x: torch.Tensor) -> torch.Tensor:
    """Returns pictures as vectors: height, width, channel."""
    return torch.movedim(x, -3, -1).flatten(-3)


def picture(x: torch.Tensor, height: int, width: int, channels: int) -> torch.Tensor:
    """Returns vectors as pictures: the inverse of `flatten_image`."""
    return torch.movedim(x.reshape(*x.shape[:-1], height, width, channels), -1, -3)


def enlarge(x: torch.Tensor) -> torch.Tensor:
    """Returns pictures of twice the height and width, each pixel repeated."""
    return x.repeat_interleave(2, dim=-2).repeat_interleave(2, dim=-1)


def join(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns the channels of both."""
    return torch.cat([x, other], dim=-3)


def convolve(x: torch.Tensor, kernel: torch.Tensor, padded: bool) -> torch.Tensor:
    """Returns x convolved with a kernel of height, width, input and output channels."""
    return functional.conv2d(x, kernel.permute(3, 2, 0, 1), padding="same" if padded else 0)


def max_pool(x: torch.Tensor) -> torch.Tensor:
    """Returns the maxima of windows of 2x2."""
    return functional.max_pool2d(x, 2)


def pad_last(x: torch.Tensor) -> torch.Tensor:
    """Returns x with a zero before and after it, along the last axis."""
    return functional.pad(x, (1, 1))


def zeros_per_example(x: torch.Tensor, trailing: int, size: int) -> torch.Tensor:
    """Returns zeros of that size for each example of x, which has so many axes besides."""
    return x.new_zeros(*x.shape[: x.ndim - trailing], size)


def scan(step: Callable[[Any, Any], Any], state: Any, x: torch.Tensor, steps: int) -> Any:
    """Returns the state after `step(state, x[..., t, :])` for each t of the last axis but one."""
    for t in range(steps):
        state = step(state, x[..., t, :])
    return state
