"""One file for each family of encoders: its options and its tensors' names."""
