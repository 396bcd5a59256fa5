"""Rules: an audience, a task and a schedule, saved once and expanded by whoever leads.

A run is written down before it begins and after it has ended, under a key that its task has too:
so a run that is repeated, resumed or raced for puts its pushes on a lane once. Needs no Spark
until a run is expanded.
"""
