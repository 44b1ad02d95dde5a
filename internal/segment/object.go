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
// Pages in the segments of ix.Refs are not among them: they are objects of their own. fn's error ends it and is returned as it is. A payload with deltas is refused: they
// mean nothing without the pages' versions before (see EachChange).
func EachPage(h *Header, ix *Index, payload []byte, fn func(pgno uint32, page []byte) error) error {
	if ix.Delta != nil {
		return damaged("deltas where whole pages are expected")
	}
	return eachWhole(h, ix, payload, fn)
}

// EachChange is EachPage for an entry that may have deltas: whole is called with every whole page, and then delta with every other one.
func EachChange(h *Header, ix *Index, payload []byte, whole func(pgno uint32, page []byte) error, delta func(Delta) error) error {
	if err := eachWhole(h, ix, payload, whole); err != nil {
		return err
	}
	return EachDelta(ix, payload, delta)
}

// EachDelta calls fn with every delta of a payload, in ascending order of pages. fn's error ends it and is returned as it is.
func EachDelta(ix *Index, payload []byte, fn func(Delta) error) error {
	if ix.Delta == nil {
		return nil
	}
	stored, err := ix.Delta.in(payload)
	if err != nil {
		return err
	}
	return ix.Delta.Deltas(stored, fn)
}

func eachWhole(h *Header, ix *Index, payload []byte, fn func(pgno uint32, page []byte) error) error {
	if err := ix.matches(h); err != nil {
		return err
	}
	for i := range ix.Blocks {
		stored, err := ix.Blocks[i].in(payload)
		if err != nil {
			return err
		}
		if err := ix.Blocks[i].Pages(stored, ix.PageSize, fn); err != nil {
			return err
		}
	}
	return nil
}

// in returns a block's stored bytes.
func (b *Block) in(payload []byte) ([]byte, error) {
	end := b.Offset + int64(b.Length)
	if b.Offset < 0 || b.Length < 0 || end > int64(len(payload)) {
		return nil, damaged("block at %d ends at %d, the payload at %d", b.Offset, end, len(payload))
	}
	return payload[b.Offset:end], nil
}
