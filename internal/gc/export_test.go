package gc

// ParseObject reads the key of a segment or a base.
func ParseObject(key string) (name string, slot, generation uint64, ok bool) {
	o, ok := parseObject(key)
	return o.name, o.slot, o.generation, ok
}
