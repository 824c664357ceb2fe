"""LiteRT files for MediaPipe's text tasks."""
