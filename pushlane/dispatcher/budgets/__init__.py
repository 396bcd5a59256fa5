"""Budgets: what limits leave this process to spend, leased ahead so that no push waits for it."""
