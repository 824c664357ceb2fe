"""Copies of a model, traced as graphs and written."""
