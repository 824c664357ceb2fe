"""Models that others trained, from the files that they are published in."""
