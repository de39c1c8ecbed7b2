"""Reads a graph: what lies between a target and its sources. Evaluates nothing."""
