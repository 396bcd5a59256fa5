"""Guards: whatever may keep a push from its delivery once it has a slot.

The port and the list that they stand in are in `guard`.
"""
