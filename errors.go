package tonbo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo/cache"
	"github.com/tonbo-go/tonbo/changeset"
	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/base"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/disk"
	"github.com/tonbo-go/tonbo/internal/layout"
	"github.com/tonbo-go/tonbo/internal/segment"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/vfs"
)

// Errors, for errors.Is. What wraps them names the database, the object or file, and what to do.
var (
	ErrNotFound      = errors.New("no such database")
	ErrExists        = errors.New("database exists")
	ErrDeleted       = errors.New("database was deleted")
	ErrExpired       = errors.New("database has expired")
	ErrFenced        = errors.New("another process took the database over")
	ErrBusy          = errors.New("database has an active owner")
	ErrLocked        = errors.New("local copy is open elsewhere")
	ErrUnsynced      = errors.New("not synced")
	ErrUnauthorized  = errors.New("credentials refused")
	ErrForbidden     = errors.New("access denied")
	ErrFrozen        = errors.New("database is frozen")
	ErrProtected     = errors.New("database is protected")
	ErrLimit         = errors.New("account holds too many databases")
	ErrIdempotency   = errors.New("idempotency key was used before")
	ErrInvalid       = errors.New("invalid option")
	ErrQuota         = errors.New("quota exceeded")
	ErrCorrupt       = errors.New("data damaged")
	ErrForeignFile   = errors.New("file is not tonbo's")
	ErrRemoteLost    = errors.New("remote has lost entries")
	ErrStoreUnfit    = errors.New("store unfit")
	ErrUnsupported   = errors.New("not supported")
	ErrClosed        = errors.New("handle is closed")
	ErrKeyBound      = errors.New("bound to another")
	ErrTargetChanged = errors.New("the key's database is another one")
	ErrRestarting    = errors.New("database does not open")
	ErrName          = errors.New("invalid name")
)

// FencedError is [ErrFenced], or [ErrDeleted] when the database was deleted, or [ErrExpired] when it has expired (and ErrDeleted too once a janitor has deleted it): this handle can no longer
// commit.
type FencedError struct {
	Name         string
	Generation   uint64    // ours
	ByGeneration uint64    // the new owner's
	By           string    // who it says it is
	At           time.Time // when it took over or deleted it, by its clock; or when the database expired
	Lost         string    // file with our commits that were not shipped, "" when there are none
	Deleted      bool
	Expired      bool
	aside        error // why there is no such file although there are such commits
}

func (e *FencedError) Error() string {
	s := fmt.Sprintf("database %s: generation %d was fenced by generation %d (%s) at %s", e.Name, e.Generation, e.ByGeneration, e.By, e.At.UTC().Format(time.RFC3339))
	switch at := e.At.UTC().Format(time.RFC3339); {
	case e.Deleted && e.Expired:
		s = fmt.Sprintf("database %s had expired and was deleted by %s at %s", e.Name, e.By, at)
	case e.Deleted:
		s = fmt.Sprintf("database %s was deleted by %s at %s", e.Name, e.By, at)
	case e.Expired:
		s = fmt.Sprintf("database %s expired at %s", e.Name, at)
	}
	switch {
	case e.Lost != "":
		s += "; commits that were not shipped are in " + e.Lost
	case e.aside != nil:
		s += fmt.Sprintf("; commits that were not shipped are still in the local copy, since they could not be set aside: %v", e.aside)
	}
	switch {
	case e.Deleted:
		return s
	case e.Expired:
		return s + "; until a janitor deletes it, Client.Update can give it a later expiry, and then Reopen goes on"
	}
	return s + "; Reopen takes it back"
}

// Is makes errors.Is see ErrFenced, ErrDeleted or ErrExpired.
func (e *FencedError) Is(target error) bool {
	return target == ErrDeleted && e.Deleted || target == ErrExpired && e.Expired || target == ErrFenced && !e.Deleted && !e.Expired
}

// OptionError is [ErrInvalid]: an option that cannot be.
type OptionError struct {
	Option string // its name: "ExpiresAt", "TTL", "Metadata", ...
	Reason string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrInvalid, e.Option, e.Reason)
}

// invalid is an [*OptionError].
func invalid(option, format string, args ...any) error {
	return &OptionError{option, fmt.Sprintf(format, args...)}
}

// notNil returns an [*OptionError] for the first function or value that is not set: names and whether they are nil, in turns.
func notNil(pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1].(bool) {
			return invalid(pairs[i].(string), "it is nil")
		}
	}
	return nil
}

// Is makes errors.Is see ErrInvalid.
func (e *OptionError) Is(target error) bool { return target == ErrInvalid }

// LockedError is [ErrLocked] and names the process that has the local copy.
type LockedError struct {
	Name string
	Path string
	PID  int // 0: unknown
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("database %s: local copy %s is open in process %d; close it there, or set another Dir", e.Name, e.Path, e.PID)
}

// Is makes errors.Is see ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// kinds maps the errors of the packages below to the public ones.
var kinds = []struct{ from, to error }{
	{remote.ErrUnauthorized, ErrUnauthorized},
	{remote.ErrDenied, ErrForbidden},
	{remote.ErrQuota, ErrQuota},
	{remote.ErrUnfit, ErrStoreUnfit},
	{remote.ErrDamaged, ErrCorrupt},
	{fence.ErrNoDatabase, ErrNotFound},
	{fence.ErrTaken, ErrExists},
	{fence.ErrFrozen, ErrFrozen},
	{fence.ErrBusy, ErrBusy},
	{fence.ErrPointGone, ErrPointGone},
	{fence.ErrDamaged, ErrCorrupt},
	{fence.ErrNewer, ErrUnsupported},
	{catalog.ErrOtherRequest, ErrIdempotency},
	{catalog.ErrGone, ErrIdempotency},
	{catalog.ErrDamaged, ErrCorrupt},
	{catalog.ErrNewer, ErrUnsupported},
	{base.ErrNewer, ErrUnsupported},
	{base.ErrFormat, ErrCorrupt},
	{cache.ErrForeign, ErrForeignFile},
	{vfs.ErrUnsupported, ErrUnsupported},
	{changeset.ErrUnsupported, ErrUnsupported},
	{changeset.ErrConflict, ErrConflict},
	{changeset.ErrTooLarge, ErrTooLarge},
	{vfs.ErrCorrupt, ErrCorrupt},
}

// dbError is an error of one database, and the public kind that it is.
type dbError struct {
	name, doing string
	kind        error
	err         error
}

func (e *dbError) Error() string {
	s := "database " + e.name + ": " + e.doing
	if e.kind != nil && (e.err == nil || !errors.Is(e.err, e.kind)) {
		s += ": " + e.kind.Error()
	}
	if e.err == nil {
		return s
	}
	// What the packages below say of it often begins in the same words.
	text := e.err.Error()
	if e.kind != nil && strings.HasPrefix(text, e.kind.Error()) && strings.HasSuffix(s, ": "+e.kind.Error()) {
		return s + strings.TrimPrefix(text, e.kind.Error()) + wayOut(e.err)
	}
	return s + ": " + text + wayOut(e.err)
}

// remoteDamage are the errors of an object that is missing or damaged.
var remoteDamage = []error{remote.ErrDamaged, fence.ErrDamaged, catalog.ErrDamaged, base.ErrFormat, segment.ErrFormat, layout.ErrMissing, layout.ErrDamaged}

// wayOut is what to do about an object of the remote that is missing or damaged, where the error does not say it.
func wayOut(err error) string {
	if !slices.ContainsFunc(remoteDamage, func(d error) bool { return errors.Is(err, d) }) || strings.Contains(err.Error(), "move it away") {
		return ""
	}
	return "; get it back from a version, replica or backup of the store (Verify tells what else is damaged): nothing is guessed in its place"
}

func (e *dbError) Unwrap() []error {
	var u []error
	if e.kind != nil {
		u = append(u, e.kind)
	}
	if e.err != nil {
		u = append(u, e.err)
	}
	return u
}

// wrap makes err an error of the database name while doing, with the public kind that fits.
func wrap(name, doing string, err error) error {
	if err == nil {
		return nil
	}
	var already *dbError
	var fenced *FencedError
	if errors.As(err, &already) || errors.As(err, &fenced) {
		return err
	}
	var locked *cache.LockedError
	if errors.As(err, &locked) {
		return &LockedError{Name: name, Path: locked.Path, PID: locked.PID}
	}
	for _, k := range kinds {
		if errors.Is(err, k.from) {
			return &dbError{name, doing, k.to, err}
		}
	}
	if limit := disk.Files(err); limit != "" {
		err = fmt.Errorf("%w: the limit %s is reached; an open database holds one file when it is idle, and about four for each connection in use: raise the limit, or close databases", err, limit)
	}
	return &dbError{name, doing, nil, err}
}

// public gives err the public kind that fits, for what is of no database.
func public(err error) error {
	for _, k := range kinds {
		if errors.Is(err, k.from) && !errors.Is(err, k.to) {
			return fmt.Errorf("%w: %w%s", k.to, err, wayOut(err))
		}
	}
	return err
}
