// Package produce turns sends into calls: which calls wait, which messages share a batch, and what became of each
// message.
//
// It may import script, link, message, event and conc. The batcher owns the calls that wait and the two batches in
// flight; a batch owns its call number. An error must never say "not stored" of a message that may be stored. Begin
// with batcher.go; batch.go has the attempts.
//
// Rules:
//   - Every error of a send says one of three things, and it is true: not stored, stored, or unknown.
//   - An attempt uses its permit when its call number is written to a connection. A caller that revokes the permit
//     before that knows that nothing was sent and nothing will be.
//   - While no attempt at a batch can have had an effect, each next one is a new call, without the messages whose
//     senders have left. Once an attempt was written and not answered, its call is repeated as it is, under its
//     number. Until one is answered, every error says unknown.
//   - A batch that is refused for good, and of which nothing can be stored, is sent once more, message by message,
//     unless the error concerns all: one message's trouble is not its neighbours'.
//   - If fewer than two batches are in flight, a send flushes at once. It does so in the caller's goroutine if the
//     caller's context cannot end before the attempt does, and the call has at most 64 KB. Later messages share the
//     next batch, of up to 500 messages or half a megabyte.
//   - A plain message of up to 2 KB that goes alone, without key and WithReplicaAck, takes single. A message with a
//     sequence, or another policy for its key than to be refused, takes put, in batches of its own. All others take
//     send.
package produce
