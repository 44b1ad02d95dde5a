package catalog

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tonbo-go/tonbo/fence"
)

// RecordPrefix is what the keys of all index records begin with.
const RecordPrefix = "names/"

// RecordKey is the key of an incarnation's index record. slot is that of its create.
func RecordKey(name string, slot uint64, id fence.ID) string {
	return incarnationKey(RecordPrefix, name, slot, id)
}

// ParseRecordKey is RecordKey's inverse.
func ParseRecordKey(key string) (name string, slot uint64, id fence.ID, ok bool) {
	return parseIncarnationKey(RecordPrefix, key)
}

func incarnationKey(prefix, name string, slot uint64, id fence.ID) string {
	return fmt.Sprintf("%s%s/%016x.%v", prefix, name, slot, id)
}

func parseIncarnationKey(prefix, key string) (name string, slot uint64, id fence.ID, ok bool) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	digits, hexID, _ := strings.Cut(rest, ".")
	slot, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		return "", 0, fence.ID{}, false
	}
	id, ok = fence.ParseID(hexID)
	return name, slot, id, ok && incarnationKey(prefix, name, slot, id) == key
}
