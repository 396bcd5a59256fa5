"""The systems' own programs: what feeds each, and what works on it.

They run in environments of their own, so they import nothing of pushlane's.
"""
