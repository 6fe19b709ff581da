package health

import (
	"strings"
	"testing"
)

func TestChecks(t *testing.T) {
	for _, c := range []struct {
		name, info string
		check      func(Info) Check
		level      Level
		says       string
	}{
		{"version", "redis_version:7.0.15", Info.version, Fine, "Redis 7.0.15"},
		{"old", "redis_version:6.0.16", Info.version, Critical, "6.0.16"},
		{"valkey", "redis_version:7.2.4 valkey_version:8.1.0", Info.version, Fine, "Valkey 8.1.0"},
		{"no version", "", Info.version, Fine, "Redis"},
		{"rubbish", "redis_version:x", Info.version, Critical, "x"},
		{"evicts", "maxmemory:100 maxmemory_policy:allkeys-lru", Info.eviction, Critical, "allkeys-lru"},
		{"would evict", "maxmemory:0 maxmemory_policy:allkeys-lru", Info.eviction, Fine, "allkeys-lru"},
		{"evicts what expires", "maxmemory:100 maxmemory_policy:volatile-lru", Info.eviction, Notice, "volatile-lru"},
		{"full", "used_memory:95 maxmemory:100", Info.memory, Critical, "95 B of 100 B"},
		{"nearly", "used_memory:2147483648 total_system_memory:2684354560", Info.memory, Warning, "2.0 GB of 2.5 GB"},
		{"unknown", "", Info.memory, Fine, "0 B"},
		{"aof", "aof_enabled:1 aof_last_write_status:ok", Info.persistence, Fine, "append-only file"},
		{"disk full", "aof_enabled:1 aof_last_write_status:err", Info.persistence, Critical, "append-only file"},
		{"no snapshot", "rdb_last_bgsave_status:err", Info.persistence, Critical, "snapshots"},
		{"loading", "loading:1", Info.persistence, Critical, "loading"},
		{"replica", "role:slave", Info.replication, Critical, "this is a replica"},
		{"replicas", "role:master connected_slaves:2", Info.replication, Fine, "replicas: 2"},
		{"clients", "connected_clients:95 maxclients:100", Info.load, Critical, "95 of 100"},
	} {
		got := c.check(InfoOf(strings.ReplaceAll(c.info, " ", "\r\n")))
		if got.Level != c.level || !strings.Contains(english(got.Found), c.says) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
