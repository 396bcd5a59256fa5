"""Clients of HTTP as sinks see them: a request goes out, and one thing is heard of it."""
