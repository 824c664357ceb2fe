"""LiteRT files."""
