"""Alerts: rules on the aggregates of receipts, told to a webhook once when they fire and recover.

What was told is kept on the backend's shelf before and after it is sent, so that a restart tells
nothing twice and forgets nothing.
"""
