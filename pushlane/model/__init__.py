"""What is said of tasks, recipients and sinks beside a push's way: values with their rules."""
