package layout_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

// flipping damages a byte of the first answers.
type flipping struct {
	remote.Store
	at, answers int
}

func (f *flipping) Get(ctx context.Context, key string, o remote.GetOptions) (remote.Object, error) {
	obj, err := f.Store.Get(ctx, key, o)
	if f.answers--; err == nil && f.answers >= 0 {
		obj.Body = slices.Clone(obj.Body)
		obj.Body[f.at] ^= 1
	}
	return obj, err
}

// TestDamageOnTheWayIsNotKept: a small object comes whole with its map, and stays in memory. A block of it that was damaged on its way is read again.
func TestDamageOnTheWayIsNotKept(t *testing.T) {
	ctx := context.Background()
	w := segment.NewWriter(512)
	want := bytes.Repeat([]byte("page"), 128)
	if err := w.Add(7, want); err != nil {
		t.Fatal(err)
	}
	payload, sum, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	hd := segment.Header{Kind: segment.KindSegment, ID: [16]byte{1}, Nonce: [16]byte{2}, Generation: 1, Slot: 1, From: 1, PageSize: 512, PageCount: 9, PayloadSize: int64(len(payload)), PayloadSum: sum}
	body, err := segment.EncodeHeader(nil, &hd)
	if err != nil {
		t.Fatal(err)
	}
	block := len(body) // the first byte of the only block
	body = append(body, payload...)
	store := mem.New("test")
	if _, err := store.Create(ctx, "seg", body); err != nil {
		t.Fatal(err)
	}
	for answers := range 2 {
		o := layout.Remote(&flipping{store, block, answers}, 512, segment.Ref{Key: "seg", First: 7, Last: 7, Pages: 1, Size: int64(len(body))})
		var got []byte
		err = o.Blocks(ctx, 0, 1, nil, func(_ uint32, page []byte) error {
			got = slices.Clone(page)
			return nil
		})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d damaged answers: %d bytes, %v", answers, len(got), err)
		}
		if kept := o.Payload() != nil; kept != (answers == 0) {
			t.Errorf("%d damaged answers: kept: %v", answers, kept)
		}
	}
	// What the store itself has is told.
	body[block] ^= 1
	if _, err := store.Create(ctx, "damaged", body); err != nil {
		t.Fatal(err)
	}
	o := layout.Remote(store, 512, segment.Ref{Key: "damaged", First: 7, Last: 7, Pages: 1, Size: int64(len(body))})
	if err := o.Blocks(ctx, 0, 1, nil, func(uint32, []byte) error { return nil }); !errors.Is(err, layout.ErrDamaged) {
		t.Errorf("got %v", err)
	}
}
