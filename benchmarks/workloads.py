"""The table of workloads: each net once, in words that every framework knows, and its weights.

A net is a function `(f, w, x)`: `f` a module of `benchmarks.frameworks` (functions of the same
names in each), `w` the weights by name, `x` one example or a batch of them, examples first.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import floors
from tfjac.bench.jobs import Job

Net = Callable[[Any, dict[str, Any], Any], Any]


@dataclasses.dataclass(frozen=True)
class Model:
    """A net and where to differentiate it.

    Args:
      title: in words, sizes and number of examples.
      net: see above.
      shapes: of the weights, by name; their entries are normal, scaled by the root of the inputs.
      x: shape of the input, examples first where `batch`.
      batch: per-example Jacobians, or the whole one.
      flops: the fewest known, for all examples.
      trains: whether what is asked for is a training step on `mean((det J - 1)^2)`.
      heavy: as in `measurement.Workload`.
    """

    title: str
    net: Net
    shapes: dict[str, tuple[int, ...]]
    x: tuple[int, ...]
    flops: float | None = None
    batch: bool = True
    trains: bool = False
    heavy: bool = False


def job(name: str, framework: str) -> Job:
    """Returns the job of a workload in the terms of a framework."""
    model, f = MODELS[name], importlib.import_module(f"benchmarks.frameworks.in_{framework}")
    random = np.random.default_rng(0)
    weights = {
        key: f.weight(random.normal(size=shape) / np.sqrt(np.prod(shape[:-1])))
        for key, shape in model.shapes.items()
    }
    x = f.tensor(random.normal(size=model.x))

    def determinant_loss(jacobian):
        det = jacobian[:, 0, 0] * jacobian[:, 1, 1] - jacobian[:, 0, 1] * jacobian[:, 1, 0]
        return f.mean((det - 1.0) ** 2)

    return Job(
        lambda w, x: model.net(f, w, x),
        weights,
        x,
        model.batch,
        determinant_loss if model.trains else None,
        (lambda y, x: f.mean((y - x) ** 2)) if model.trains else None,
    )


def _dense_shapes(sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for i, pair in enumerate(zip(sizes[:-1], sizes[1:])):
        shapes |= {f"w{i}": pair, f"b{i}": (pair[1],)}
    return shapes


def mlp(activation: str, sizes: Sequence[int], examples: int, **options: Any) -> Model:
    """Returns dense layers with an activation between them."""
    last = len(sizes) - 2

    def net(f, w, x):
        for i in range(last + 1):
            x = x @ w[f"w{i}"] + w[f"b{i}"]
            x = x if i == last else getattr(f, activation)(x)
        return x

    title = f"{activation} {'-'.join(map(str, sizes))}, {examples}"
    flops = 2.0 * examples * floors.mlp(sizes)
    shapes = _dense_shapes(sizes)
    return dataclasses.replace(Model(title, net, shapes, (examples, sizes[0]), flops), **options)


def softmax_classifier(examples: int) -> Model:
    """Returns one dense layer and a softmax."""

    def net(f, w, x):
        return f.softmax(x @ w["w0"] + w["b0"])

    # Row i is p_i (W_i - sum of p_j W_j).
    flops = 2.0 * examples * (3 * 784 * 10)
    return Model(
        f"softmax classifier 784-10, {examples}",
        net,
        _dense_shapes([784, 10]),
        (examples, 784),
        flops,
    )


def residual_mlp(examples: int) -> Model:
    """Returns a dense layer, eight blocks x + W relu(V x), and a dense layer."""
    size, width, blocks = 64, 128, 8

    def net(f, w, x):
        x = x @ w["in"]
        for i in range(blocks):
            x = x + f.relu(x @ w[f"v{i}"] + w[f"b{i}"]) @ w[f"w{i}"]
        return x @ w["out"]

    shapes = {"in": (size, width), "out": (width, size)}
    for i in range(blocks):
        shapes |= {f"v{i}": (width, width), f"b{i}": (width,), f"w{i}": (width, width)}
    flops = 2.0 * examples * floors.residual(size, width, blocks)
    title = f"residual MLP {size}-{blocks}x{width}-{size}, {examples}"
    return Model(title, net, shapes, (examples, size), flops)


def layernorm_mlp(examples: int) -> Model:
    """Returns dense layers, each but the last followed by LayerNorm and GELU."""
    sizes = [64, 128, 128, 128, 64]

    def net(f, w, x):
        for i in range(3):
            x = x @ w[f"w{i}"] + w[f"b{i}"]
            x = f.gelu(f.layer_norm(x, 1.0 + w[f"gain{i}"], w[f"offset{i}"]))
        return x @ w["w3"] + w["b3"]

    shapes = _dense_shapes(sizes)
    for i in range(3):
        shapes |= {f"gain{i}": (sizes[i + 1],), f"offset{i}": (sizes[i + 1],)}
    title = f"LayerNorm + GELU {'-'.join(map(str, sizes))}, {examples}"
    flops = 2.0 * examples * floors.mlp(sizes)
    return Model(title, net, shapes, (examples, sizes[0]), flops)


def lenet(examples: int) -> Model:
    """Returns two convolutions (5x5x20, padded, and 5x5x50) with max-pooling, and 1250-500-10."""

    def net(f, w, x):
        x = f.as_image(x)
        x = f.max_pool(f.relu(f.convolve(x, w["k0"], padded=True)))
        x = f.max_pool(f.relu(f.convolve(x, w["k1"], padded=False)))
        x = f.relu(f.flatten_image(x) @ w["w0"] + w["b0"])
        return x @ w["w1"] + w["b1"]

    shapes = {"k0": (5, 5, 1, 20), "k1": (5, 5, 20, 50), **_dense_shapes([1250, 500, 10])}
    return Model(
        f"LeNet 28x28, {examples}",
        net,
        shapes,
        (examples, 28, 28),
        2.0 * examples * floors.lenet(10),
    )


def attention(examples: int) -> Model:
    """Returns x + attention(x) of four heads."""
    positions, width, heads = 16, 32, 4

    def net(f, w, x):
        def split(x):
            return f.reshape(x, (positions, width), (positions, heads, width // heads))

        query, key, value = (split(x @ w[name]) for name in ("query", "key", "value"))
        scores = f.einsum("...qhd,...khd->...hqk", query, key) / np.sqrt(width / heads)
        mixed = f.einsum("...hqk,...khd->...qhd", f.softmax(scores), value)
        mixed = f.reshape(mixed, (positions, heads, width // heads), (positions, width))
        return x + mixed @ w["out"]

    shapes = {name: (width, width) for name in ("query", "key", "value", "out")}
    flops = 2.0 * examples * floors.attention(positions, width, heads)
    title = f"attention {positions}x{width}, {examples}"
    return Model(title, net, shapes, (examples, positions, width), flops)


def conv_decoder(examples: int) -> Model:
    """Returns a dense layer from 16 to pictures, enlarged and convolved twice, to 28x28."""

    def net(f, w, x):
        x = f.picture(f.relu(x @ w["w0"] + w["b0"]), 7, 7, 32)
        x = f.relu(f.convolve(f.enlarge(x), w["k0"], padded=True))
        return f.flatten_image(f.convolve(f.enlarge(x), w["k1"], padded=True))

    shapes = {"w0": (16, 7 * 7 * 32), "b0": (7 * 7 * 32,), "k0": (3, 3, 32, 16)}
    return Model(
        f"conv decoder 16 to 28x28, {examples}",
        net,
        {**shapes, "k1": (3, 3, 16, 1)},
        (examples, 16),
        2.0 * examples * floors.conv_decoder(),
    )


def u_net(examples: int) -> Model:
    """Returns convolutions of a picture of 16x16 and of half its size, joined, to 16x16."""

    def net(f, w, x):
        fine = f.relu(f.convolve(f.as_image(x), w["k0"], padded=True))
        coarse = f.relu(f.convolve(f.max_pool(fine), w["k1"], padded=True))
        both = f.join(fine, f.enlarge(coarse))
        out = f.convolve(f.relu(f.convolve(both, w["k2"], padded=True)), w["k3"], padded=True)
        return f.flatten_image(out)

    shapes = {"k0": (3, 3, 1, 8), "k1": (3, 3, 8, 16), "k2": (3, 3, 24, 8), "k3": (3, 3, 8, 1)}
    flops = 2.0 * examples * floors.u_net()
    return Model(f"U-Net 16x16, {examples}", net, shapes, (examples, 16, 16), flops)


def resnet_block(examples: int) -> Model:
    """Returns x + two convolutions of a picture of 8x8 with 8 channels."""

    def net(f, w, x):
        picture = f.picture(x, 8, 8, 8)
        inner = f.relu(f.convolve(picture, w["k0"], padded=True))
        return f.flatten_image(picture + f.convolve(inner, w["k1"], padded=True))

    shapes = {"k0": (3, 3, 8, 8), "k1": (3, 3, 8, 8)}
    flops = 2.0 * examples * floors.resnet_block()
    return Model(f"ResNet block 8x8x8, {examples}", net, shapes, (examples, 512), flops)


def transformer(examples: int) -> Model:
    """Returns x + attention(norm(x)), then x + dense(gelu(dense(norm(x))))."""
    positions, width, heads, inner = 64, 64, 4, 256

    def net(f, w, x):
        def split(x):
            return f.reshape(x, (positions, width), (positions, heads, width // heads))

        normal = f.layer_norm(x, 1.0 + w["gain0"], w["offset0"])
        query, key, value = (split(normal @ w[name]) for name in ("query", "key", "value"))
        scores = f.einsum("...qhd,...khd->...hqk", query, key) / np.sqrt(width / heads)
        mixed = f.einsum("...hqk,...khd->...qhd", f.softmax(scores), value)
        mixed = f.reshape(mixed, (positions, heads, width // heads), (positions, width))
        x = x + mixed @ w["out"]
        normal = f.layer_norm(x, 1.0 + w["gain1"], w["offset1"])
        return x + f.gelu(normal @ w["w0"] + w["b0"]) @ w["w1"] + w["b1"]

    shapes = {name: (width, width) for name in ("query", "key", "value", "out")}
    shapes |= {f"{name}{i}": (width,) for name in ("gain", "offset") for i in (0, 1)}
    shapes |= _dense_shapes([width, inner, width])
    flops = 2.0 * examples * floors.transformer(positions, width, heads, inner)
    title = f"transformer block {positions}x{width}, {examples}"
    return Model(title, net, shapes, (examples, positions, width), flops)


def vae(examples: int) -> Model:
    """Returns 784-256-16-256-784, the middle drawn about a mean with a deviation."""
    inputs, hidden, latent = 784, 256, 16

    def net(f, w, x):
        h = f.tanh(x @ w["w0"] + w["b0"])
        z = h @ w["mean"] + f.exp(0.5 * (h @ w["spread"])) * w["noise"]
        h = f.tanh(z @ w["w1"] + w["b1"])
        return f.sigmoid(h @ w["w2"] + w["b2"])

    shapes = {"mean": (hidden, latent), "spread": (hidden, latent), "noise": (latent,)}
    shapes |= {"w0": (inputs, hidden), "b0": (hidden,), "w1": (latent, hidden), "b1": (hidden,)}
    shapes |= {"w2": (hidden, inputs), "b2": (inputs,)}
    flops = 2.0 * examples * floors.vae(inputs, hidden, latent)
    title = f"VAE {inputs}-{hidden}-{latent}-{hidden}-{inputs}, {examples}"
    return Model(title, net, shapes, (examples, inputs), flops)


def lstm(examples: int) -> Model:
    """Returns an LSTM and a dense layer on its last output."""
    steps, inputs, units, outputs = 20, 16, 32, 10

    def net(f, w, x):
        def step(state, x):
            hidden, cell = state
            gates = x @ w["input"] + hidden @ w["hidden"] + w["bias"]
            take, forget, new, give = (gates[..., i * units : (i + 1) * units] for i in range(4))
            cell = f.sigmoid(forget) * cell + f.sigmoid(take) * f.tanh(new)
            return f.sigmoid(give) * f.tanh(cell), cell

        zeros = f.zeros_per_example(x, 2, units)
        hidden, _ = f.scan(step, (zeros, zeros), x, steps)
        return hidden @ w["out"]

    shapes = {
        "input": (inputs, 4 * units),
        "hidden": (units, 4 * units),
        "bias": (4 * units,),
        "out": (units, outputs),
    }
    flops = 2.0 * examples * floors.lstm(steps, inputs, units, outputs)
    title = f"LSTM {steps}x{inputs}, {units} units, {examples}"
    return Model(title, net, shapes, (examples, steps, inputs), flops)


def linear(size: int) -> Model:
    """Returns one dense layer of one example, its Jacobian whole."""
    shapes = {"w": (size, size)}
    return Model(
        f"linear {size}x{size}",
        lambda f, w, x: f.matvec(w["w"], x),
        shapes,
        (size,),
        0.0,
        batch=False,
    )


def elementwise(size: int) -> Model:
    """Returns an elementwise map, its Jacobian dense."""
    return Model(
        f"elementwise {size}", lambda f, w, x: f.tanh(x) * x, {}, (size,), 0.0, batch=False
    )


def stencil(cells: int) -> Model:
    """Returns a reaction and diffusion of neighbors in one dimension, its Jacobian dense."""

    def net(f, w, x):
        wide = f.pad_last(x)
        return x * (1.0 - x) + 0.1 * (wide[..., :-2] - 2.0 * x + wide[..., 2:])

    return Model(f"3-point stencil, {cells} cells", net, {}, (cells,), 0.0, batch=False)


_TINY = [2, 5, 5, 2]
_SEED = [784, 256, 256, 1]

MODELS = {
    "mlp_sigmoid": mlp("sigmoid", _SEED, 500),
    "mlp_relu": mlp("relu", [784, 512, 512, 10], 256),
    "softmax": softmax_classifier(256),
    "autoencoder": mlp("tanh", [784, 256, 32, 256, 784], 32),
    "autoencoder_wide": mlp("relu", [3072, 512, 64, 512, 3072], 4),
    "decoder": mlp("relu", [16, 256, 512, 784], 128),
    "tiny_100": mlp("tanh", _TINY, 100),
    "tiny_1000": mlp("tanh", _TINY, 1000),
    "tiny_10000": mlp("tanh", _TINY, 10_000),
    "lenet": lenet(64),
    "residual": residual_mlp(128),
    "layernorm": layernorm_mlp(128),
    "attention": attention(8),
    "transformer": transformer(4),
    "conv_decoder": conv_decoder(32),
    "u_net": u_net(16),
    "resnet_block": resnet_block(32),
    "vae": vae(32),
    "lstm": lstm(32),
    "full": mlp(
        "sigmoid",
        _SEED,
        500,
        batch=False,
        heavy=True,
        title="sigmoid 784-256-256-1, all of (500, 1, 500, 784)",
    ),
    "linear": linear(2000),
    "elementwise": elementwise(2000),
    "stencil": stencil(2000),
    "determinant_100": mlp(
        "tanh", _TINY, 100, trains=True, flops=None, title="determinant step 2-5-5-2, 100"
    ),
    "determinant_10000": mlp(
        "tanh", _TINY, 10_000, trains=True, flops=None, title="determinant step 2-5-5-2, 10000"
    ),
}
