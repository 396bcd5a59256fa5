"""The receipts pipeline reads the log of receipts into the store in batches, exactly once.

A batch is read, cleaned of repeats, written, and published by one manifest, which also says how far
the log was read; only then the log is told that it was read.
"""
