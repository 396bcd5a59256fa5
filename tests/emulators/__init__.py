"""Providers as their pages describe them, on this machine: to test sinks, and for the demo."""
