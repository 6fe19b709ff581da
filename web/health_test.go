package web

import "testing"

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
