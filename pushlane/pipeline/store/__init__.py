"""The store of receipts: Parquet tables whose files count once a manifest names them.

It is plain Python and JSON without Spark: `open_store` is for readers, `StoreWriter` for the one
writer. A reader sees one moment, however long it reads.
"""

from pushlane.pipeline.store.manifest import (
    CorruptStore,
    FileCounts,
    FileEntry,
    Gap,
    Generation,
    SampledBatch,
    StoreBusy,
    StoreState,
)
from pushlane.pipeline.store.reading import Snapshot, Store, open_store
from pushlane.pipeline.store.writing import StoreWriter

__all__ = [
    "CorruptStore",
    "FileCounts",
    "FileEntry",
    "Gap",
    "Generation",
    "SampledBatch",
    "Snapshot",
    "Store",
    "StoreBusy",
    "StoreState",
    "StoreWriter",
    "open_store",
]
