"""The version of pushlane: read by packaging too, so it stands alone as a plain text."""

VERSION = "0.2.0"
