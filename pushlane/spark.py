"""For Spark jobs: `spark.dataSource.register(PushlaneDataSource)`, then write in format pushlane;
and `mask`, which masks personal columns as `pushlane.Masks` masks values.

Apart from the rest, since it loads PySpark (the extra `pipeline`).
"""

from pushlane.model.masks import FieldType, Sensitivity
from pushlane.pipeline.fanout.source import PushlaneDataSource
from pushlane.pipeline.spark_masks import mask

__all__ = ["FieldType", "PushlaneDataSource", "Sensitivity", "mask"]
