"""The ground that all else stands on: tasks, pushes, lane names, and the ports with their adapters.

Imports nothing else of pushlane. Vendor types (pulsar, redis, sqlite3) never leave the adapter
folder that is named after them.
"""
