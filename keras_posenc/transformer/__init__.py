"""Transformer layers, from attention to whole models."""
