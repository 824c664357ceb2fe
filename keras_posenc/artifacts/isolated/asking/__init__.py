"""Runs artifacts."""
