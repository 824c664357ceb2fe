"""Asks an artifact, and judges its answers by its model's."""
