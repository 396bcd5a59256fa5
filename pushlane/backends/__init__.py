"""Backends: every port that a deployment needs, by one adapter each."""
