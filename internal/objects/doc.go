// Package objects is the data plane of a server: it hands the objects of an account's store through to callers that hold a key of the server and no credentials of the store.
//
// What it promises:
//
//   - The fence holds through it (docs/fencing.md). A create-if-absent is one request to the store, never repeated, never answered from memory: what the store said is what the caller is told, and what the store did not say is
//     unknown. No answer is ever cached.
//   - A narrowed key touches the objects of the databases that it reaches and no others. It neither deletes nor overwrites anything, and it creates log entries only of the kinds that an owner writes (claim, commit, base, close), segments and
//     bases: it makes, ends, rewinds, freezes and thaws no database, raises the horizon only by a base, and names no object that its database does not stand on.
//   - A fork stands on objects below its source's prefix. Which they are, the fork's create says, which no narrowed key can write: what that point stands on may be read on behalf of the fork, and nothing else of the source.
//   - What a key does not reach answers as what does not exist, with the same bytes.
//   - Memory is bounded whatever callers do: uploads take their place in a budget before a byte of them is read, downloads go through in pieces, and a caller that stalls is cut off.
//
// It knows no keys and no secrets: who asks, and what that one reaches, is a [Caller]. The routes are package server's, the words are internal/objectwire's.
//
// [Handler.Serve] is where a request enters. reach.go says what a key of the store belongs to, and who may do what with it; ancestry.go what a fork stands on; entries.go what a narrowed key may write.
package objects
