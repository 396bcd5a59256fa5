"""Spans of sampled pushes, made when an attempt has ended, and exported by OpenTelemetry."""
