"""Reports over the store of receipts, answered by DuckDB inside this process.

It reads what the store's manifests name and never writes there; it starts no Spark. What a user
types reaches SQL only as a bound value, or as a word from a list of ours.
"""
