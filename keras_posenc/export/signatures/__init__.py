"""Signatures: what an export offers by name."""
