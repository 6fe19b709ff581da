package web

import (
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	f := newFixture(t, Config{})
	got := f.get("health")
	f.sees(got.body, "Redis is well", "Server 1", "noeviction", "snapshots", "If this machine is lost")
	f.sees(f.get("health?lang=zh").body, "Redis 正常", "淘汰策略")
	f.sees(f.listen("live?page=health").next().Parts["servers"], "Redis is well")
}

// A user who may not ask is told so, and the page is there.
func TestHealthWithoutInfo(t *testing.T) {
	f := newFixture(t, Config{})
	if err := f.cli.Do(f.Context(), "ACL", "SETUSER", "default", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	f.sees(f.get("health").body, "info lets it")
}

func TestHealthChecks(t *testing.T) {
	for _, c := range []struct {
		name, info string
		check      func(*language, info) serverCheck
		level      level
		says       string
	}{
		{"version", "redis_version:7.0.15", (*language).version, fine, "Redis 7.0.15"},
		{"old", "redis_version:6.0.16", (*language).version, critical, "6.0.16"},
		{"valkey", "redis_version:7.2.4 valkey_version:8.1.0", (*language).version, fine, "Valkey 8.1.0"},
		{"rubbish", "redis_version:x", (*language).version, critical, "x"},
		{"evicts", "maxmemory:100 maxmemory_policy:allkeys-lru", (*language).eviction, critical, "allkeys-lru"},
		{"would evict", "maxmemory:0 maxmemory_policy:allkeys-lru", (*language).eviction, fine, "allkeys-lru"},
		{"evicts what expires", "maxmemory:100 maxmemory_policy:volatile-lru", (*language).eviction, notice, "volatile-lru"},
		{"full", "used_memory:95 maxmemory:100", (*language).memory, critical, "95 B of 100 B"},
		{"nearly", "used_memory:2147483648 total_system_memory:2684354560", (*language).memory, warning, "2.0 GB of 2.5 GB"},
		{"unknown", "", (*language).memory, fine, "0 B"},
		{"aof", "aof_enabled:1 aof_last_write_status:ok", (*language).persistence, fine, "append-only file"},
		{"disk full", "aof_enabled:1 aof_last_write_status:err", (*language).persistence, critical, "append-only file"},
		{"no snapshot", "rdb_last_bgsave_status:err", (*language).persistence, critical, "snapshots"},
		{"loading", "loading:1", (*language).persistence, critical, "loading"},
		{"replica", "role:slave", (*language).replication, critical, "this is a replica"},
		{"replicas", "role:master connected_slaves:2", (*language).replication, fine, "replicas: 2"},
		{"clients", "connected_clients:95 maxclients:100", (*language).load, critical, "95 of 100"},
	} {
		got := c.check(languages[0], infoOf(strings.ReplaceAll(c.info, " ", "\r\n")))
		if got.Level != c.level || !strings.Contains(got.Found, c.says) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
