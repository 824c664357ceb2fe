"""Generating sequences with models of the next token, and texts from texts."""
