"""SavedModel version folders."""
