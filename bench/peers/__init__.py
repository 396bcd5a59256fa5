"""The rivals that benchmarks run beside pushlane, each in a Python environment of its own."""
