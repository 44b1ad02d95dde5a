package mem

import (
	"bytes"
	"context"
	"io"

	"github.com/tonbo-go/tonbo/remote"
)

var _ remote.Streamer = (*Store)(nil)

// Stream implements [remote.Streamer].
func (s *Store) Stream(ctx context.Context, key string, o remote.GetOptions) (remote.Info, io.ReadCloser, error) {
	obj, part, err := s.part(ctx, key, o)
	if err != nil {
		return remote.Info{}, nil, err
	}
	return obj.info(key), reader{bytes.NewReader(part)}, nil // bodies are written once
}

type reader struct{ *bytes.Reader }

func (reader) Close() error { return nil }
