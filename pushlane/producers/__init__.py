"""Puts pushes on lanes: sources, templates and the submit that ties them to a task.

Imports backends and what lies below them only. It never delivers anything and never chooses whose
turn it is.
"""
