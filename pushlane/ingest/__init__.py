"""Reads records of a source elsewhere, such as Kafka, and makes each a push of a stream, once."""
