"""What runs in workers; it imports neither Keras nor keras_posenc."""
