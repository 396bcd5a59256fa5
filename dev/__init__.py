"""What a clone has for whoever develops: the demo, a local Pulsar and Redis, and their commands.

It is not installed with pushlane. `pushlane.cli.dev` loads its commands where that runs from a
clone, nothing else of the product needs it; benchmarks, scripts and tests import it.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The clone."""
