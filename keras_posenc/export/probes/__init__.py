"""Test inputs, the model's outputs for them, and the comparison of outputs."""
