"""Pretrained encoders: reading and writing the files they are published in."""
