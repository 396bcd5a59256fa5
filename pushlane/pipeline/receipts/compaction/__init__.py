"""Compaction turns many small files into few large ones, and rolls up or removes old ones.

It changes no count. All of a run is published by one manifest; the files that it replaces are
removed from the disk after a grace time, since a reader may have them open.
"""
