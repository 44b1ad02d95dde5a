package segment

// Decode reads a whole object: the header, and the payload's index. All is checked but the blocks, which EachPage and Block.Pages check.
// payload is the part of object after the header. Errors: ErrFormat, *VersionError, *KindError.
func Decode(object []byte) (h *Header, ix *Index, payload []byte, err error) {
	h, n, err := DecodeHeader(object)
	if err != nil {
		return nil, nil, nil, err
	}
	payload = object[n:]
	if ix, err = DecodeIndex(payload, h); err != nil {
		return nil, nil, nil, err
	}
	return h, ix, payload, nil
}

// EachPage calls fn with every page in the blocks of a payload, in ascending order. A page's bytes are valid only during the call.
// Pages in the segments of ix.Refs are not among them: they are objects of their own. fn's error ends it and is returned as it is.
func EachPage(h *Header, ix *Index, payload []byte, fn func(pgno uint32, page []byte) error) error {
	if err := ix.matches(h); err != nil {
		return err
	}
	for i := range ix.Blocks {
		b := &ix.Blocks[i]
		end := b.Offset + int64(b.Length)
		if b.Offset < 0 || b.Length < 0 || end > int64(len(payload)) {
			return damaged("block at %d ends at %d, the payload at %d", b.Offset, end, len(payload))
		}
		if err := b.Pages(payload[b.Offset:end], ix.PageSize, fn); err != nil {
			return err
		}
	}
	return nil
}
