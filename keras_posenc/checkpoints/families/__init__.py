"""What each family of models is made of, and what its tensors are called."""
