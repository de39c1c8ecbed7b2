"""Penalties on Jacobians within Keras models. Import it by name: `import tfjac.keras`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfjac import derived, errors, estimates, spectra

PENALTIES = ("contractive", "spectral", "determinant")


@tf.keras.utils.register_keras_serializable(package="tfjac")
class JacobianPenalty(tf.keras.layers.Layer):
    """A model or layer with a penalty on its per-example Jacobian added to the loss.

    Called as the inner one is, it returns what that returns; while training it adds
    `weight * mean(penalty)` over the examples:

    - "contractive": the squared Frobenius norm, as S. Rifai et al., "Contractive Auto-Encoders",
      2011; with `probes` an unbiased estimate of it (J. Hoffman et al., arXiv:1908.02729);
    - "spectral": the squared spectral norm;
    - "determinant": `(|det J| - 1)^2`, which is zero where volumes are preserved.

    Args:
      inner: a Keras model or layer of one tensor `[B, ...]`, that keeps examples apart.
      penalty: "contractive", "spectral" or "determinant".
      weight: of the penalty.
      probes: for "contractive", number of random vectors, others at each step (see
        `tf.keras.utils.set_random_seed`); None for the exact norm.
      iterations: for "spectral", steps of power iteration; None for the exact norm.
      **options: as of a Keras layer.

    Raises:
      InvalidValueError: an unknown penalty, or an option that it does not take.
      ExamplesMixError: when called, where the inner model mixes examples, as batch normalization
        does while training.

    Example:
      >>> import tfjac.keras
      >>> inner = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(2)])
      >>> model = tf.keras.Sequential([tfjac.keras.JacobianPenalty(inner, weight=0.1)])
      >>> model.compile("sgd", "mse")
      >>> history = model.fit(np.ones([4, 3]), np.ones([4, 2]), verbose=0)
      >>> bool(history.history["loss"][0] > 0)
      True
    """

    def __init__(
        self,
        inner: tf.keras.layers.Layer,
        penalty: str = "contractive",
        weight: float = 1.0,
        probes: int | None = None,
        iterations: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if penalty not in PENALTIES:
            raise errors.InvalidValueError(
                errors.message(
                    "penalty", "one of " + ", ".join(PENALTIES), repr(penalty), "Choose one."
                )
            )
        for name, value, taker in (
            ("probes", probes, "contractive"),
            ("iterations", iterations, "spectral"),
        ):
            if value is not None and penalty != taker:
                raise errors.InvalidValueError(
                    errors.message(
                        name, f"None unless penalty is {taker!r}", repr(value), "Leave it out."
                    )
                )
            if value is not None:
                estimates.check_count(name, value)
        self.inner = inner
        self.penalty = penalty
        self.weight = weight
        self.probes = probes
        self.iterations = iterations
        self._traced = tf.function(self._penalized, autograph=False)  # for eager calls
        # A state that is saved, so only where something is drawn.
        draws = probes is not None or iterations is not None
        self._draws = tf.keras.random.SeedGenerator() if draws else None

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns what the inner model gives, and adds the penalty while training.

        Args:
          x: `[B, ...]`, floating.
          training: as Keras passes it.
        """
        if not training:
            return self.inner(x, training=training)
        if tf.is_symbolic_tensor(x):
            y, penalty = self._penalized(x)
        else:
            y, penalty = self._traced(x)
        self.add_loss(penalty)
        return y

    def compute_output_shape(self, shape: Any) -> Any:
        """Returns the shape of what the inner model gives.

        Args:
          shape: that of x.
        """
        return self.inner.compute_output_shape(shape)

    def get_config(self) -> dict[str, Any]:
        """Returns what Keras needs to make it anew."""
        return {
            **super().get_config(),
            "inner": tf.keras.utils.serialize_keras_object(self.inner),
            "penalty": self.penalty,
            "weight": self.weight,
            "probes": self.probes,
            "iterations": self.iterations,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> JacobianPenalty:
        """Returns the layer that a configuration describes.

        Args:
          config: from `get_config`.
        """
        inner = tf.keras.utils.deserialize_keras_object(config["inner"])
        return cls(**{**config, "inner": inner})

    def _seed(self) -> tf.Tensor:
        """Returns another seed at each step: what a fixed one never sees would not be penalized."""
        return tf.cast(self._draws.next(), tf.int64)

    def _penalized(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        value = self.inner(x, training=True)
        # Squares of half precision overflow soon.
        y = tf.cast(value, tf.float64 if value.dtype == tf.float64 else tf.float32)
        if self.penalty == "contractive":
            seed = 0 if self.probes is None else self._seed()
            norm = spectra.frobenius_norm(y, x, batch=True, probes=self.probes, seed=seed)
            found = tf.square(norm)
        elif self.penalty == "spectral":
            seed = 0 if self.iterations is None else self._seed()
            norm = spectra.spectral_norm(y, x, batch=True, iterations=self.iterations, seed=seed)
            found = tf.square(norm)
        else:
            found = tf.square(tf.abs(derived.det(y, x, batch=True)) - 1)
        return value, self.weight * tf.reduce_mean(found)
