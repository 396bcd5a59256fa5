"""Writes the chart's dashboard and alert rules from the definitions of the metrics.

    python -m scripts.monitoring [--docs URL]

What they show cannot be out of date, nor name a metric that there is not.
"""
