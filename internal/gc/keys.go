package gc

import (
	"strconv"
	"strings"
)

// objectKey is what the key of a segment or base tells. Slot is a base's alone.
type objectKey struct {
	name       string
	slot       uint64
	generation uint64
}

// parseObject reads db/<name>/seg/<generation>-<nonce> and db/<name>/base/<slot>-<generation>-<nonce>.
func parseObject(key string) (o objectKey, ok bool) {
	p := strings.Split(key, "/")
	if len(p) != 4 || p[0] != "db" || p[1] == "" {
		return o, false
	}
	o.name = p[1]
	t := strings.Split(p[3], "-")
	if p[2] == "base" && len(t) == 3 {
		if o.slot, ok = number(t[0]); !ok {
			return o, false
		}
		t = t[1:]
	} else if p[2] != "seg" {
		return o, false
	}
	if len(t) != 2 || len(t[1]) != 32 {
		return o, false
	}
	o.generation, ok = number(t[0])
	return o, ok
}

func number(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 16, 64)
	return n, err == nil && len(s) == 16
}
