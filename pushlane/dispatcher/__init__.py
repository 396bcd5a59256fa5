"""Drains lanes in quota-weighted order: slot, turn, push, sink, outcome, ack.

Imports backends and what lies below them only. Usable inside another service: no signal handlers,
no globals, no metrics but those asked for.
"""

from pushlane.dispatcher.service import Dispatcher

__all__ = ["Dispatcher"]
