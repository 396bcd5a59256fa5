"""For Spark jobs: `spark.dataSource.register(PushlaneDataSource)`, then write in format pushlane.

Apart from the rest, since it loads PySpark (the extra `pipeline`).
"""

from pushlane.pipeline.fanout.source import PushlaneDataSource

__all__ = ["PushlaneDataSource"]
