"""Gates: whatever may keep a push of a lane from taking its turn."""
