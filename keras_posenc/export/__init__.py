"""Verified exports of any Keras model to files that other runtimes load."""
