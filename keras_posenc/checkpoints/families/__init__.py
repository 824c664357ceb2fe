"""Families of checkpoints: their options, and the names of their tensors."""
