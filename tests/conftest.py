"""Two logical CPU devices for the whole run, so that placement can be tested without a GPU.

TensorFlow's own log is silenced before it is imported, and a fallback to a loop is an error.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()],
)


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "error::tfjac.errors.LoopFallbackWarning")
