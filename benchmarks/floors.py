"""The fewest floating-point operations known for a Jacobian: what its floor is made of.

All count multiply-adds for one example; a multiply-add is two operations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence


def forward(sizes: Sequence[int]) -> int:
    """Returns the multiply-adds of a forward pass through dense layers of these sizes."""
    return sum(a * b for a, b in zip(sizes[:-1], sizes[1:]))


def dense_chain(sizes: Sequence[int]) -> int:
    """Returns the multiply-adds of the cheapest order to multiply the layers' Jacobians.

    The matrix chain product (Godbole 1973); elementwise layers between them scale rows and are not
    counted.
    """

    @functools.cache
    def cheapest(first: int, last: int) -> int:
        if last - first == 1:
            return 0
        return min(
            cheapest(first, cut) + cheapest(cut, last) + sizes[first] * sizes[cut] * sizes[last]
            for cut in range(first + 1, last)
        )

    return cheapest(0, len(sizes) - 1)


def mlp(sizes: Sequence[int]) -> int:
    """Returns the multiply-adds of a forward pass and the Jacobian of dense layers."""
    return forward(sizes) + dense_chain(sizes)


def residual(size: int, width: int, blocks: int) -> int:
    """Returns the same of dense, `blocks` times x + W relu(V x), dense; by reverse mode."""
    block = 2 * width * width
    passes = size * (blocks * block + width * size)
    return 2 * size * width + blocks * block + passes


def lenet(rows: int) -> int:
    """Returns the same of the net that `workloads.lenet` describes, by reverse mode."""
    convolutions = 28 * 28 * 25 * 20 + 10 * 10 * 25 * 20 * 50
    hidden, last = 1250 * 500, 500 * 10
    # The first product of reverse mode is the last layer's weight itself.
    return convolutions + hidden + last + rows * (convolutions + hidden)


def attention(positions: int, width: int, heads: int) -> int:
    """Returns the same of the block that `workloads.attention` describes.

    Three outer products for each pair of positions and each head: through the value, whose weight
    times the output's is the same for all; through the key; and through the query, a product over
    the positions.
    """
    projections = 4 * positions * width * width
    scores = 2 * positions * positions * width
    return projections + scores + 3 * positions * positions * heads * width * width


def lstm(steps: int, inputs: int, units: int, rows: int) -> int:
    """Returns the same of an LSTM with a dense layer on its last state, by reverse mode."""
    step = 4 * units * (inputs + units)
    return steps * step + units * rows + rows * steps * step


def convolution(height: int, width: int, size: int, given: int, out: int) -> int:
    """Returns the multiply-adds of a padded convolution of a picture with `size` x `size`."""
    return height * width * size * size * given * out


def conv_decoder() -> int:
    """Returns the same of the net that `workloads.conv_decoder` describes, by forward mode."""
    dense = 16 * 7 * 7 * 32
    after = convolution(14, 14, 3, 32, 16) + convolution(28, 28, 3, 16, 1)
    # The first product of forward mode is the first layer's weight itself.
    return dense + after + 16 * after


def u_net() -> int:
    """Returns the same of the net that `workloads.u_net` describes, by reverse mode."""
    head = convolution(16, 16, 3, 1, 8)
    inner = convolution(8, 8, 3, 8, 16) + convolution(16, 16, 3, 24, 8)
    last = convolution(16, 16, 3, 8, 1)
    # The last layer's Jacobian is a band of its weight.
    return head + inner + last + 256 * (head + inner)


def resnet_block() -> int:
    """Returns the same of the block that `workloads.resnet_block` describes."""
    one = convolution(8, 8, 3, 8, 8)
    return 2 * one + 512 * one


def transformer(positions: int, width: int, heads: int, inner: int) -> int:
    """Returns the same of the block that `workloads.transformer` describes.

    Its two halves by themselves, the second a matrix for each position, and their product.
    """
    second = 2 * positions * width * inner * (1 + width)
    both = positions * width * width * positions * width
    return attention(positions, width, heads) + second + both


def vae(inputs: int, hidden: int, latent: int) -> int:
    """Returns the same of the net that `workloads.vae` describes."""
    sizes = [inputs, hidden, latent, hidden, inputs]
    return mlp(sizes) + 2 * inputs * hidden * latent
