// Package redistest gives tests the real thing to run against: redis-server
// processes that a test may stop, kill, freeze and restart, a Redis Cluster,
// and a faulty wire.
//
//   - [Start] runs one redis-server for a test, [Run] one for a TestMain.
//   - [StartCluster] runs a Redis Cluster, [StartSentinel] a primary with replicas and sentinels.
//   - [NewWire] puts a TCP proxy before a server. It understands RESP, so it
//     can lose, or hold back, exactly the reply or the command that a test
//     names, however the client pipelines.
//   - [Script] picks the calls of one Lua script out of a wire's traffic.
//
// Every fault says when it has struck, so a test can assert that what it
// survived did happen. Nothing here sleeps and hopes: all waits are for
// something, with a deadline.
//
// redis-server must be in PATH ("make test" installs it), or DELAYQUEUE_REDIS_SERVER
// names another server's executable (".ci/servers path NAME" fetches one); Redis 6.2
// is enough. A test without one fails, it is never skipped. All that a test starts ends
// with it, its servers, its files and its goroutines, and on Linux the servers
// end even when the test binary is killed.
package redistest
