"""What a model offers, by name."""
