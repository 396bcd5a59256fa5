"""The outbox between an application and the broker: a buffer, a spool and a sender.

A batch is cut once and never changes: it is what is kept, sent, repeated and forgotten. Nothing
here knows titles or recipients; the bodies of pushes are bytes.
"""
