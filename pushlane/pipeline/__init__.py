"""The data pipeline on Spark: it turns audiences into pushes, and receipts into reports.

It imports lanes, and from producers only what makes a task. No dispatcher loads it.
"""
