"""Test inputs, the model's own outputs, and how far others may differ."""
