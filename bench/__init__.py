"""Benchmarks: one file each, run as `python -m bench NAME`; the last line is one JSON object.

They count what came out at the receiving end and fail loudly when a push was lost. Speed lives here
and never in a test.
"""
