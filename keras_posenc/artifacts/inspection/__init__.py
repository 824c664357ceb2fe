"""What a file says of itself, and whether it is safe."""
