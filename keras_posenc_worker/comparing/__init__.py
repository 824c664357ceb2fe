"""Compares artifacts with their models."""
