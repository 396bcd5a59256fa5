"""What a cluster to try is made of: how many of each, and their settings."""

from __future__ import annotations

from dev.stack.services import HOST

CLUSTER = "cluster"
BOOKIES = 3
BROKERS = 2
SESSION_S = 4
"""How long ZooKeeper waits for a broker that is silent, before others take over its topics."""

JAVA = {
    "PULSAR_GC": "-XX:+UseSerialGC",
    "BOOKIE_GC": "-XX:+UseSerialGC",
    "PULSAR_EXTRA_OPTS": "-XX:TieredStopAtLevel=1",
    "BOOKIE_EXTRA_OPTS": "-XX:TieredStopAtLevel=1",
    "PULSAR_LOG_LEVEL": "warn",
    "PULSAR_LOG_ROOT_LEVEL": "warn",
}
ZOOKEEPER = {
    "tickTime": "1000",
    "clientPortAddress": HOST,
    "admin.enableServer": "false",
    "metricsProvider.className": "org.apache.zookeeper.metrics.impl.NullMetricsProvider",
}
BOOKIE = {
    "advertisedAddress": HOST,
    "listeningInterface": "lo",
    "allowLoopback": "true",
    "zkTimeout": str(SESSION_S * 1000),
    "statsProviderClass": "org.apache.bookkeeper.stats.NullStatsProvider",
    "journalSyncData": "true",
    "journalMaxSizeMB": "64",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    "dbStorage_rocksDB_blockCacheSize": str(16 << 20),
}
BROKER = {
    "clusterName": CLUSTER,
    "bindAddress": HOST,
    "advertisedAddress": HOST,
    "metadataStoreSessionTimeoutMillis": str(SESSION_S * 1000),
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
    "managedLedgerCacheSizeMB": "32",
    "allowAutoTopicCreation": "false",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "delayedDeliveryTickTimeMillis": "100",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
}


def memory(heap_mb: int) -> str:
    return f"-Xms64m -Xmx{heap_mb}m -XX:MaxDirectMemorySize=256m"
