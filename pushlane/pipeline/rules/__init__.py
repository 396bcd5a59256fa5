"""Rules: an audience, a task and a schedule that are saved once, and run by the leading process.

A run is stored before it begins and after it has ended, under a key that its task has too, so that
a run that is repeated, resumed or raced for publishes its pushes once. Spark is loaded only when a
run is expanded.
"""
