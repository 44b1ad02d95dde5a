package remote

import (
	"context"
	"io"
)

// A Streamer is a [Store] that can also hand the bytes of an object on while they come, so that whoever passes them on holds no more of them than it likes. It is there for speed alone: what Get answers counts.
type Streamer interface {
	// Stream begins to read o.Length bytes from o.Offset, which is not negative, with one request that it does not repeat. The reader has exactly the bytes that [GetOptions.Span] picks: io.EOF comes after the last one of
	// them, and a body that is cut is another error. Close it, also after an error of its own. It may have WriteTo.
	//
	// Whatever Stream does not manage at the first try is an error, of no certain kind: ask Get.
	Stream(ctx context.Context, key string, o GetOptions) (Info, io.ReadCloser, error)
}
