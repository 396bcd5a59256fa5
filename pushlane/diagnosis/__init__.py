"""Says what a task waits for, and when it will be through, from what processes say of themselves.

Pure but for `look`, which reads a backend. Imports backends and what lies below them only, and
changes nothing.
"""
