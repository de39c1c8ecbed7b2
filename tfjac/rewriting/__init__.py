"""Ops whose derivatives in TensorFlow are wrong, missing or right only once, replaced in a copy."""
