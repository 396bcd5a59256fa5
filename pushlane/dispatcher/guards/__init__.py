"""Guards: whatever may keep a push from its delivery once it has a slot."""
