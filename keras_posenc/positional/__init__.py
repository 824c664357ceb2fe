"""Layers that put positions into a model, one public class per file."""
