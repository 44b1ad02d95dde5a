package access

import (
	"crypto/rand"
	"crypto/sha256"
	"math/big"
	"strings"
)

// Mark is what every secret begins with: tbo_<id of the key>_<256 random bits>. The id finds the key without a look at all others; it is no secret.
const Mark = "tbo_"

const (
	idLen     = 20 // of 36 letters and digits: 103 bits
	randomLen = 43 // 62^43 > 2^256
	idLetters = "0123456789abcdefghijklmnopqrstuvwxyz"
)

// ownerID is the id of the account's first owner key: a fixed one, so that two servers that make it at once make one.
const ownerID = "owner000000000000000"

// newID returns a random key id.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	s := new(big.Int).SetBytes(b[:]).Text(36)
	return (strings.Repeat("0", idLen) + s)[len(s):]
}

// newSecret returns a secret for the key of that id. It is as random as its hash is long, so one round of SHA-256 keeps it: there is nothing to guess.
func newSecret(id string) string {
	var b [32]byte
	rand.Read(b[:])
	s := new(big.Int).SetBytes(b[:]).Text(62)
	return Mark + id + "_" + strings.Repeat("0", randomLen-len(s)) + s
}

// idOf returns the id in a secret. False: it is none.
func idOf(secret string) (string, bool) {
	rest, ok := strings.CutPrefix(secret, Mark)
	if !ok || len(rest) != idLen+1+randomLen || rest[idLen] != '_' {
		return "", false
	}
	for _, c := range []byte(rest[idLen+1:]) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return "", false
		}
	}
	return rest[:idLen], validID(rest[:idLen])
}

func validID(id string) bool {
	return len(id) == idLen && strings.Trim(id, idLetters) == ""
}

func hashOf(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }
