"""Compaction: few large files instead of many small ones, and the old ones rolled up or removed.

It changes no count. All of a run is published by one manifest; what that replaces is removed from
the disk after a grace time, since a reader may have it open.
"""
