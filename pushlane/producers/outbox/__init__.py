"""What an application has pushed, until the broker has it: a buffer, a spool and a sender.

A batch is cut once and never changes: it is what is kept, sent, repeated and forgotten. Nothing
here knows titles or recipients; the bodies of pushes are bytes.
"""
