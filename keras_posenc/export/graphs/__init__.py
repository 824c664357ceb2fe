"""Tracing and writing of models, and what their graphs are made of."""
