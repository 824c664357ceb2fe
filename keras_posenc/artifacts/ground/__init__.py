"""What every room of the artifacts stands on."""
