package fence

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tonbo-go/tonbo/remote"
)

// Source names one point: what lives under Name as ID, as of Slot.
type Source struct {
	Name string
	ID   ID
	Slot uint64
}

// Pin is a fork's hold on the point that it starts from: while the object is there, no collector deletes what the point stands on (R10).
type Pin struct {
	Source Source // the point
	Child  Source // who holds it: Slot is that of its create
}

// PinPrefix is what the keys of all pins on a name begin with.
func PinPrefix(name string) string { return "db/" + name + "/pin/" }

// Key of the pin's object. It does not tell the point's slot: that is in the body.
func (p Pin) Key() string {
	return fmt.Sprintf("%s%s/%016x.%v.%v", PinPrefix(p.Source.Name), p.Child.Name, p.Child.Slot, p.Child.ID, p.Source.ID)
}

// ParsePinKey is Key's inverse, without the point's slot.
func ParsePinKey(key string) (p Pin, ok bool) {
	s := strings.Split(key, "/")
	if len(s) != 5 || s[0] != "db" || s[2] != "pin" {
		return p, false
	}
	t := strings.Split(s[4], ".")
	if len(t) != 3 || len(t[0]) != 16 {
		return p, false
	}
	slot, err := strconv.ParseUint(t[0], 16, 64)
	if err != nil || slot == 0 {
		return p, false
	}
	p.Source.Name, p.Child.Name, p.Child.Slot = s[1], s[3], slot
	var okChild, okSource bool
	p.Child.ID, okChild = ParseID(t[1])
	p.Source.ID, okSource = ParseID(t[2])
	return p, okChild && okSource && p.Key() == key
}

// ParseID reads what ID.String returns.
func ParseID(s string) (id ID, ok bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, false
	}
	copy(id[:], b)
	return id, id.String() == s
}

const pinFormat = 1

type pinBody struct {
	Format int      `json:"format"`
	Source pinPoint `json:"source"`
	Child  pinPoint `json:"child"`
}

type pinPoint struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	Slot uint64 `json:"slot"`
}

func pointBody(s Source) pinPoint { return pinPoint{s.Name, s.ID.String(), s.Slot} }

func (p Pin) encode() ([]byte, error) {
	return json.Marshal(pinBody{pinFormat, pointBody(p.Source), pointBody(p.Child)})
}

// DecodePin reads the body of the pin at key. ErrDamaged when it is not that of this key, ErrNewer when it is of another format.
func DecodePin(key string, body []byte) (Pin, error) {
	p, ok := ParsePinKey(key)
	var b pinBody
	if err := json.Unmarshal(body, &b); err != nil {
		return p, fmt.Errorf("%w: pin %s: %w", ErrDamaged, key, err)
	}
	if b.Format != pinFormat {
		return p, fmt.Errorf("%w: pin %s has format %d, this version reads %d: update tonbo", ErrNewer, key, b.Format, pinFormat)
	}
	p.Source.Slot = b.Source.Slot
	if !ok || p.Source.Slot == 0 || b.Source != pointBody(p.Source) || b.Child != pointBody(p.Child) {
		return p, fmt.Errorf("%w: pin %s: its body is of another", ErrDamaged, key)
	}
	return p, nil
}

// putPin puts a pin, and repeats it until it is known to be there (its key is this attempt's own) or ctx ends.
func (l *Log) putPin(ctx context.Context, p Pin) error {
	body, err := p.encode()
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		_, err := l.store.Create(ctx, p.Key(), body)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, remote.ErrExists):
			o, rerr := l.store.Get(ctx, p.Key(), remote.GetOptions{})
			switch {
			case rerr == nil && bytes.Equal(o.Body, body):
				return nil
			case rerr == nil:
				return fmt.Errorf("another object is in the place of a pin: %w", err)
			case !errors.Is(rerr, remote.ErrNotFound):
				return rerr
			}
		case definite(err):
			return err
		}
		if werr := l.wait(ctx, try, err); werr != nil {
			return errors.Join(werr, err)
		}
	}
}
