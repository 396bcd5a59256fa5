"""Says what a task waits for, and when it will be through, from what processes say of themselves.

Pure but for `look`, which reads a backend. Imports `lanes` only, and changes nothing.
"""
