"""The mathematics: pure functions on `keras.ops`, without state."""
