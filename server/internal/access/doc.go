// Package access decides who may do what: keys, what they reach, and how they are kept in the remote.
//
// A [Key] is what a secret stands for: an identity, a role, and what the key is narrowed to. [Key.May] is the whole of the policy for databases, [Key.Covers] that for making keys: neither asks the remote.
// [Keys] keeps them: each key has a small log of its own, keys/<id>/<inverted slot>, as an instance key has, written create-if-absent and never changed: make, rotate and revoke are entries in it, so that any number of
// servers agree on what is in force. docs/format.md has the fields.
//
// It knows no HTTP.
package access
