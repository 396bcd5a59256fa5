"""The receipts pipeline: the log of receipts is read in batches into the store, exactly once.

A batch is read, cleaned of repeats, written, and published by one manifest, which also says how far
the log was read; only then does the log learn that it was taken over.
"""
