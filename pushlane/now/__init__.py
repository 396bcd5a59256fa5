"""The view of now: who gets what of each sink, kept up to date while anybody looks.

One of it is in each process, for all who look there, whatever they look at it with.
"""
