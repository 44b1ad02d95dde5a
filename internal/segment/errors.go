package segment

import (
	"errors"
	"fmt"
)

// ErrFormat: the bytes are not what a writer of this format wrote: damaged, cut short, or another file. The wrapping error says what is wrong.
var ErrFormat = errors.New("damaged or foreign object")

// ErrNewer: a *VersionError or a *KindError.
var ErrNewer = errors.New("written by a newer tonbo")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// VersionError: an undamaged object in a format version that this build cannot read.
type VersionError struct {
	Version uint16
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("format version %d, this build reads version %d: written by a newer tonbo: update", e.Version, Version)
}

// Is makes errors.Is see ErrNewer.
func (e *VersionError) Is(target error) bool { return target == ErrNewer }

// KindError: an undamaged object that holds something this build does not know. It is refused, never skipped.
type KindError struct {
	What string // "object kind", "block kind" or "flags"
	Kind uint64 // the value found; for flags the unknown bits
}

func (e *KindError) Error() string {
	return fmt.Sprintf("%s %d not supported by this version: written by a newer tonbo: update", e.What, e.Kind)
}

// Is makes errors.Is see ErrNewer.
func (e *KindError) Is(target error) bool { return target == ErrNewer }

// ShortError: b ends within the header. It is ErrFormat too, since a whole object never ends there.
type ShortError struct {
	Need int // bytes from the start of the object that hold the header, as far as is known yet
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("%v: ends within the header, which needs %d bytes", ErrFormat, e.Need)
}

// Is makes errors.Is see ErrFormat.
func (e *ShortError) Is(target error) bool { return target == ErrFormat }
