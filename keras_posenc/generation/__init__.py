"""From a model of the next token to sequences, and from texts to texts."""
