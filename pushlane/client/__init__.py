"""The client of an application: the operations on tasks, limits, recipients and dead pushes.

`operations.py` lists them all. Each is one method with plain parameters and a value as its result,
so that other doors can be made of the list. It never delivers: that is the dispatcher's.
"""
