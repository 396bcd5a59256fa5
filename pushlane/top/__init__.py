"""The view of now in a terminal, with the keys to steer what it shows."""
