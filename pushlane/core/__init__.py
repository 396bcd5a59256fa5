"""The way of a push, from submit to ack. It imports nothing of ours but the wire form."""
