"""One file for each command: `add` its arguments, `run` it with them."""
