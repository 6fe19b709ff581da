// Package message is what Redis keeps of a message, as bytes and as Go values: ids, tags, envelopes, groups, fail
// records, and a delivered message.
//
// It may import the standard library and google/uuid, and nothing that speaks to Redis. It owns no state: its values
// are plain data. It must never trust a byte: bytes from Redis that cannot be read are an error, not a panic. A field
// that is not known is skipped or set aside. The bytes of all formats are frozen in frozen_test.go, because scripts,
// other versions and internal/check rely on them. Begin with envelope.go.
//
// Rules:
//   - The places of version, due and key never change, because scripts of older versions read them.
//   - Scripts read more than that: the flags of version 1 and the fields 1, 4, 5, 6, 129, 130, 133, 134 and 136
//     (lua/lib/message.lua, group.lua, countdown.lua and lane.lua). All other fields are read here alone.
//   - A new field of 128 and more takes two releases. CONTRIBUTING.md lists all places that a new field touches.
package message
