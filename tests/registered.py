"""The op types that TensorFlow registers gradients for."""

from tensorflow.python.framework import ops


def registered_op_types() -> frozenset[str]:
    """Returns the op types that have a gradient registered, or are registered as having none.

    Importing TensorFlow registers all that it has: none waits for its first use (2.21). Left out is
    what custom gradients and called functions register, under a name with a hyphen and a number.
    """
    return frozenset(name for name in ops.gradient_registry.list() if "-" not in name)
