"""Pure functions on `keras.ops`, without state, and base classes of layers."""
