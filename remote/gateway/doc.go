// Package gateway is a [remote.Store] over HTTP: the data plane of a tonbo server (package server), for programs that hold a key of the server and no credentials of its bucket.
//
// The fence holds through it. Create and Swap are one request each, that nothing here repeats, redirects or answers by itself; the server sends one on to its store, and says what the store said. An answer that was
// lost on either way is [remote.ErrUnknown]. A refusal, a taken key or an absent object is believed only when the answer carries a code of the server's own: a page of some proxy proves nothing.
//
// The server's keys may be narrowed to some databases. Requests then have to say on behalf of which database they are made ([remote.OnBehalf]), since a fork's pages lie partly below its source's prefix; others are
// made on behalf of the database that the object's key names.
package gateway
