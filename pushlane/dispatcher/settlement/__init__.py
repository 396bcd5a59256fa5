"""Settlement: outcomes become durable, and only then are messages acked."""
