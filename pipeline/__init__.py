"""The data pipeline on Spark: audiences go to lanes, receipts come back as reports.

Imports lanes, and of producers what makes a task. Nothing here is loaded by a dispatcher.
"""
