"""Jacobians of one table of models by tfjac, TensorFlow, JAX and PyTorch; see __main__.py."""
