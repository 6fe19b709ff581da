// Package script has the keys of a queue and the Lua scripts that change them, with one request and one reply for
// each call. It is the answer to the question what Redis holds, and who may change it.
//
// It may import link and message. It owns no Go state but the texts of the scripts; a Caller owns its call number.
// Nothing else calls a script of the core. No other code may write a key of the queue, except schedule/, which writes
// the key schedules by scripts of its own, wake, which takes the marker, and delayqueuetest, which moves state.seen
// and state.ticked with its clock. Begin with keys.go and the first lines of each script (lua/*.lua), which list
// KEYS, ARGV, replies, cost and invariants. In Lua, "-- from s: f" is the function f of lib/s.lua, or of s.lua if s
// names a folder (settle/scan). What Redis gets is in assembled/ (assembled_test.go).
//
// Rules:
//   - Redis decides who holds a delivery, and what a repeat of a call does: by tags, lease ends and call numbers.
//   - Scripts are not rolled back. So a script reads all keys that it may touch before its first write, and nothing
//     that is read may raise. Only single undoes its writes.
//   - The first write of a send is a ZADD, which a server that is out of memory refuses, with nothing stored. That of
//     what consumes or takes away is a ZREM, HDEL or LPOP, which such a server lets pass, and all that follows.
//   - No script compares two clocks. Durations go to the server, which makes instants of them, and instants that
//     users name are the server's.
//   - A counter is a field of state that the script reads and writes anyway, so counting adds no command.
//   - A command that a script newly calls is one more right of an ACL user: TestRolesAreDocumented fails then, and
//     -acl.write writes docs/acl.md.
//   - The model (model_*_test.go) is the queue once more. A change of a script is a change of the model.
package script
