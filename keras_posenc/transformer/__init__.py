"""The Transformer encoder, from attention to a whole model."""
