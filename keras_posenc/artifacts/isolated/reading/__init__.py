"""Reads artifacts."""
