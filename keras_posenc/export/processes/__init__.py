"""Processes of their own for what may be hostile."""
