"""Tools that know nothing of pushes or tasks."""
