"""The store of receipts: Parquet tables whose files count once a manifest names them.

Plain Python and JSON, without Spark: `open_store` for who reads, `StoreWriter` for the one who
writes. A reader sees one moment, however long it reads.
"""

from pipeline.store.errors import CorruptStore, StoreBusy
from pipeline.store.layout import Generation
from pipeline.store.manifest import Counts, FileEntry, Gap, Interval, Manifest, State
from pipeline.store.reading import Snapshot, Store, TableSize, open_store, store_root
from pipeline.store.writing import StoreWriter, written_files

__all__ = [
    "CorruptStore",
    "Counts",
    "FileEntry",
    "Gap",
    "Generation",
    "Interval",
    "Manifest",
    "Snapshot",
    "State",
    "Store",
    "StoreBusy",
    "StoreWriter",
    "TableSize",
    "open_store",
    "store_root",
    "written_files",
]
