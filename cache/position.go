package cache

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
)

// walPosition says that the WAL with these salts is valid at least up to end, bytes from its start: just behind a commit frame. Two WALs, or one before and after a
// restart, have different salts. The zero value says nothing.
type walPosition struct {
	salt1, salt2 uint32
	end          int64
}

// readPosition reads from SQLite's own index of the WAL how far that is committed: the header at the start of the -shm file, which is there
// twice and is written after the commit frame (https://sqlite.org/walformat.html#the_wal_index_header). Zero when there is none.
func readPosition(shm string) walPosition {
	f, err := os.Open(shm)
	if err != nil {
		return walPosition{}
	}
	defer f.Close()
	var h [96]byte
	if _, err := io.ReadFull(f, h[:]); err != nil || !bytes.Equal(h[:48], h[48:]) || binary.NativeEndian.Uint32(h[:]) != walVersion || h[12] == 0 {
		return walPosition{}
	}
	frames := binary.NativeEndian.Uint32(h[16:])
	if frames == 0 {
		return walPosition{}
	}
	size := int64(binary.NativeEndian.Uint16(h[14:]))
	if size == 1 {
		size = 65536
	}
	return walPosition{ // the salts are in the file's byte order
		salt1: binary.BigEndian.Uint32(h[32:]),
		salt2: binary.BigEndian.Uint32(h[36:]),
		end:   walHeaderLen + int64(frames)*(frameHeaderLen+size),
	}
}
