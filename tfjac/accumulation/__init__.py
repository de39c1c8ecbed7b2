"""The chain rule as products of local Jacobians, multiplied in the cheapest order."""
