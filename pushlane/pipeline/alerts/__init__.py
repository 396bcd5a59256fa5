"""Alerts watch the counts of receipts, and tell a webhook once when a rule fires and recovers.

Each message is kept in the backend's document store until the webhook has taken it, so that a
restart repeats nothing and forgets nothing.
"""
