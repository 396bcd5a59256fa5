"""The work of the dispatcher that leads, for all processes together."""
