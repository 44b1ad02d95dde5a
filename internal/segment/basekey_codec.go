package segment

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// A base's key, db/<name>/base/<slot>-<generation>-<nonce>, is in every entry behind it: as numbers it takes a third of its text.
const (
	keyBefore = "db/"
	keyWithin = "/base/"
	keyNumber = 16                                          // hexadecimal digits of a slot, or a generation
	keyNonce  = 32                                          // of a nonce
	keyBehind = len(keyWithin) + 2*(keyNumber+1) + keyNonce // bytes behind the name
	keyLeast  = len(keyBefore) + 1 + keyBehind              //
	keyDigits = "0123456789abcdef"                          //
	keyLimit  = MaxString - (len(keyBefore) + keyBehind)    // bytes of a name
)

// baseKey is such a key.
type baseKey struct {
	name             string
	slot, generation uint64
	nonce            [keyNonce / 2]byte
}

// parseBaseKey takes a key apart. ok: put together, it is the very same one.
func parseBaseKey(key string) (k baseKey, ok bool) {
	if len(key) < keyLeast || !strings.HasPrefix(key, keyBefore) {
		return k, false
	}
	at := len(key) - keyBehind
	k.name = key[len(keyBefore):at]
	rest, ok := strings.CutPrefix(key[at:], keyWithin)
	if !ok || rest[keyNumber] != '-' || rest[2*keyNumber+1] != '-' {
		return k, false
	}
	slot, generation, nonce := rest[:keyNumber], rest[keyNumber+1:2*keyNumber+1], rest[2*(keyNumber+1):]
	if k.slot, ok = parseDigits(slot); !ok {
		return k, false
	}
	if k.generation, ok = parseDigits(generation); !ok {
		return k, false
	}
	for i := range k.nonce {
		b, ok := parseDigits(nonce[2*i : 2*i+2])
		if !ok {
			return k, false
		}
		k.nonce[i] = byte(b)
	}
	return k, true
}

func parseDigits(s string) (v uint64, ok bool) {
	for i := range len(s) {
		d := strings.IndexByte(keyDigits, s[i])
		if d < 0 {
			return 0, false
		}
		v = v<<4 | uint64(d)
	}
	return v, true
}

func (k *baseKey) String() string {
	b := make([]byte, 0, len(keyBefore)+len(k.name)+keyBehind)
	b = append(append(append(b, keyBefore...), k.name...), keyWithin...)
	b = append(appendNumber(b, k.slot), '-')
	b = append(appendNumber(b, k.generation), '-')
	return string(hex.AppendEncode(b, k.nonce[:]))
}

func appendNumber(b []byte, v uint64) []byte {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], v)
	return hex.AppendEncode(b, n[:])
}

func appendBaseKey(b []byte, k *baseKey) []byte {
	b = appendString(b, k.name)
	b = binary.AppendUvarint(b, k.slot)
	b = binary.AppendUvarint(b, k.generation)
	return append(b, k.nonce[:]...)
}

func (c *cursor) baseKey() string {
	k := baseKey{name: c.string()}
	k.slot, k.generation = c.uvarint(), c.uvarint()
	copy(k.nonce[:], c.bytes(len(k.nonce)))
	if k.name == "" || len(k.name) > keyLimit {
		c.bad = true
	}
	if c.bad {
		return ""
	}
	return k.String()
}
