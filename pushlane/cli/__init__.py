"""The `pushlane` command: one file a group of commands, and what they share.

Turns arguments into calls and values into text. It never talks to a broker but through the ports.
"""
