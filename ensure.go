package tonbo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
)

// EnsureOptions of Ensure. The zero value gives the key an empty database.
type EnsureOptions struct {
	Create   CreateOptions // of a database that is made; its IdempotencyKey and IfNotExists are Ensure's own
	Template string        // fork this database at its head instead of making an empty one
	Version  string        // up to 200 bytes; the database's version is brought to this one. "": it stays
	// Migrate is called when the database has another Version, once per key and version whoever asks: what it writes and the new version are one transaction, which the remote acknowledges before Ensure
	// returns. from is "" for a database without a version. An error leaves everything as it was. Nil: the version changes and nothing else. It needs Version, and must not Ensure the same key.
	Migrate  func(ctx context.Context, tx *sql.Tx, from string) error
	Adopt    string // name or ID of a database that exists, to bind to a key that has none: [ErrKeyBound] otherwise
	ExpectID string // the key must have this database: [ErrTargetChanged] otherwise, and nothing is made
	// ReplaceAfter > 0: a database that has been damaged for this long gets replaced by a new one, of the next generation; the old one is kept. Default 0: never, since its data would not be in the new one.
	ReplaceAfter time.Duration
}

// RestartingError is [ErrRestarting]: a key's database does not open. Call Ensure again after RetryAfter. errors.Is sees the cause, too.
type RestartingError struct {
	Key        string
	RetryAfter time.Duration
	Since      time.Time // when it was first seen
	Err        error
}

func (e *RestartingError) Error() string {
	return fmt.Sprintf("instance %s: its database does not open since %s; call Ensure again after %s, Replace it, or set EnsureOptions.ReplaceAfter: %v", e.Key, e.Since.UTC().Format(time.RFC3339), e.RetryAfter, e.Err)
}

// Is makes errors.Is see ErrRestarting.
func (e *RestartingError) Is(target error) bool { return target == ErrRestarting }

func (e *RestartingError) Unwrap() error { return e.Err }

// want is what a key's next database is to be.
type want struct {
	create   CreateOptions
	template string // "": empty
	replaces bool   // fulfil this intent, or none
}

// Ensure returns the database of a key, open: one database for each key, however many processes ask at once. The key's first Ensure makes it; when it was deleted or has expired, the next one makes the key's next generation. The name of
// the database is the key's, as long as no other one has it.
//
// Ensures in one process share a handle, through this client, and do not fence each other; close each Instance's DB. An Ensure in another process takes the database over, as [Open] does: the handle here then gets [ErrFenced], and the next Ensure here takes it back.
//
// Errors, for errors.Is: [ErrKeyBound] (Adopt), [ErrTargetChanged] (ExpectID), [ErrRestarting] (a [*RestartingError]), [ErrFrozen] (somebody has frozen the key's database), those of Migrate, and those of [Client.Create], [Client.Fork] and [Open].
func (i *Instances) Ensure(ctx context.Context, key string, o EnsureOptions) (*Instance, error) {
	if err := ValidateName(key); err != nil {
		return nil, err
	}
	if err := o.check(i.c.o.time()); err != nil {
		return nil, i.wrap(key, "ensure", err)
	}
	if ctx.Value(inMigration{i, key}) != nil {
		return nil, i.wrap(key, "ensure", errors.New("Ensure was called from within the key's own Migrate, which has the transaction already"))
	}
	unlock, err := i.lock(ctx, key)
	if err != nil {
		return nil, i.wrap(key, "ensure", err)
	}
	defer unlock()
	in, err := i.ensure(ctx, key, o)
	return in, i.wrap(key, "ensure", err)
}

func (o *EnsureOptions) check(now time.Time) error {
	if err := o.Create.check(now); err != nil {
		return err
	}
	for _, id := range []*string{&o.Adopt, &o.ExpectID} { // in one spelling
		if parsed, ok := fence.ParseID(strings.ToLower(*id)); ok {
			*id = parsed.String()
		}
	}
	switch {
	case o.Create.IdempotencyKey != "":
		return invalid("Create.IdempotencyKey", "an instance's key is its idempotency key; leave it unset")
	case o.Create.Frozen:
		return invalid("Create.Frozen", "an instance's database is opened, which a frozen one refuses")
	case o.Migrate != nil && o.Version == "":
		return invalid("Version", "Migrate is called when the version changes: say to which one")
	case o.ReplaceAfter < 0:
		return invalid("ReplaceAfter", "%s is negative", o.ReplaceAfter)
	case o.Adopt != "" && o.Template != "":
		return invalid("Adopt", "Template is set too: set either Adopt or Template")
	case len(o.Version) > 200:
		return invalid("Version", "Version has %d bytes, at most 200 are allowed", len(o.Version))
	case !utf8.ValidString(o.Version):
		return invalid("Version", "%q is no UTF-8", o.Version)
	case o.Template != "":
		return ValidateName(o.Template)
	}
	return nil
}

// inMigration marks the ctx of a key's Migrate.
type inMigration struct {
	i   *Instances
	key string
}

// ensure returns the key's database, open. The caller has the turn.
func (i *Instances) ensure(ctx context.Context, key string, o EnsureOptions) (*Instance, error) {
	created := false
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// (1) Which database has the key?
		b, ours, again, err := i.which(ctx, key, o)
		if err != nil {
			return nil, err
		}
		if created = created || ours; again {
			continue
		}
		// (2) Open it, that incarnation and no other.
		in := instanceOf(key, b)
		id, err := idOf(b)
		if err != nil {
			return nil, err
		}
		var h *sharing
		h, in.Started, err = i.start(ctx, key, b, id)
		if err != nil {
			if ours, err = i.unopened(ctx, key, b, o, created, err); err != nil {
				return nil, err
			}
			created = created || ours
			continue
		}
		if created {
			in.Started = Created
		}
		// (3) Its version, under the fence.
		db := i.lease(id, h)
		if b.Kind == catalog.Failing {
			_, _, err = i.append(ctx, key, b, catalog.Binding{Kind: catalog.Bound, Generation: b.Generation, Name: b.Name, ID: b.ID})
		}
		if err == nil {
			in.Version, err = db.migrate(context.WithValue(ctx, inMigration{i, key}, true), o.Version, o.Migrate)
		}
		if err == nil {
			in.DB = db
			return in, nil
		}
		rerr := db.lease.leave(false)
		if errors.Is(err, ErrFenced) && try < 100 { // another process has asked at the same moment: it may be migrating. Let it come to its end
			if err := pause(ctx, time.Duration(1+mathrand.IntN(20<<min(try, 6)))*time.Millisecond); err != nil {
				return nil, err
			}
			continue
		}
		return nil, errors.Join(err, rerr)
	}
}

// which returns the binding of the database that the key has, made if there was none. ours: this call made it. again: it was adopted, look again.
func (i *Instances) which(ctx context.Context, key string, o EnsureOptions) (b *catalog.Binding, ours, again bool, err error) {
	b, err = i.bindings(key).Head(ctx)
	if err != nil {
		return nil, false, false, err
	}
	has := b.Kind == catalog.Bound || b.Kind == catalog.Failing
	switch {
	case o.ExpectID != "" && (!has || b.ID != o.ExpectID):
		return nil, false, false, fmt.Errorf("%w: it has %s, expected was %s", ErrTargetChanged, orNone(b.ID, has), o.ExpectID)
	case o.Adopt != "" && (!has || b.ID != o.Adopt && b.Name != o.Adopt):
		_, err := i.Bind(ctx, key, o.Adopt)
		return nil, false, true, err
	case !has:
		b, ours, err = i.make(ctx, key, b, want{create: o.Create, template: o.Template})
	}
	return b, ours, false, err
}

// unopened does what there is to be done about the database that b names, which did not open because of cause. No error: look again which one the key has. created: this call has made the database; ours: it has made another one now.
func (i *Instances) unopened(ctx context.Context, key string, b *catalog.Binding, o EnsureOptions, created bool, cause error) (ours bool, err error) {
	switch {
	case errors.Is(cause, fence.ErrNoDatabase), errors.Is(cause, ErrNotFound), errors.Is(cause, ErrDeleted), errors.Is(cause, ErrExpired):
		// It has ended: the key's next generation. Unless that is what this call has made: the next one would fare no better.
		if created && errors.Is(cause, ErrExpired) {
			return false, tooShort(cause)
		}
		return i.succeed(ctx, key, b, o, cause)
	case errors.Is(cause, ErrKeyBound):
		// It is another key's, and the log of this one is to say so.
		_, _, err := i.append(ctx, key, b, catalog.Binding{Kind: catalog.Release, Generation: b.Generation})
		return false, err
	case errors.Is(cause, ErrFrozen):
		// A Replace that runs at this moment has frozen it: the key has another one then, or will.
		now, err := i.bindings(key).Head(ctx)
		if err == nil && now.Slot == b.Slot {
			err = fmt.Errorf("%w; Thaw it, or Replace it", cause)
		}
		return false, err
	case errors.Is(cause, ErrCorrupt), errors.Is(cause, ErrRemoteLost):
		// It does not open. Nothing takes its place unless that was asked for.
		return i.failing(ctx, key, b, o, cause)
	}
	return false, cause
}

// succeed gives the key its next generation, since the database that b names has ended: ended says how.
func (i *Instances) succeed(ctx context.Context, key string, b *catalog.Binding, o EnsureOptions, ended error) (ours bool, err error) {
	if o.ExpectID != "" || o.Adopt != "" {
		return false, fmt.Errorf("%w: database %s has ended", ErrTargetChanged, b.ID)
	}
	if errors.Is(ended, ErrDeleted) { // its deletion has begun: it comes to its end before anything takes its place
		if err := i.c.deleteOnly(ctx, b.Name, b.ID); err != nil && !errors.Is(err, ErrNotFound) {
			return false, err
		}
	}
	_, ours, err = i.make(ctx, key, b, want{create: o.Create, template: o.Template})
	return ours, err
}

// tooShort is the error of a database that was made and has expired before it was of use to anybody.
func tooShort(err error) error {
	return fmt.Errorf("%w: the database that was made for this call has expired before it was open; give Create a longer TTL, or a later ExpiresAt", err)
}

func orNone(id string, has bool) string {
	if !has {
		return "none"
	}
	return id
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start returns an open handle of the database that b names, with a reference to it.
func (i *Instances) start(ctx context.Context, key string, b *catalog.Binding, id fence.ID) (h *sharing, how Started, err error) {
	h, fresh, err := i.acquire(ctx, b.Name, id)
	if errors.Is(err, ErrNotFound) {
		return nil, "", i.whyGone(ctx, b, err)
	}
	if err != nil {
		return nil, "", err
	}
	if has := h.db.h.instanceKey(); has != key && (has != "" || !fresh) { // another key has adopted it, and this one's log does not say so yet? Or it is open since before this one did
		if err := i.notAnothers(ctx, key, b); err != nil {
			return nil, "", errors.Join(err, i.release(id, h))
		}
	}
	if fresh {
		owner, _ := h.db.h.current()
		if prev := owner.Prev(); prev != nil && prev.Kind != fence.Close && prev.Kind != fence.Create && time.Since(prev.Time).Abs() < runningWithin {
			return h, Running, nil
		}
		return h, Resumed, nil
	}
	// It may have been taken over, deleted or have expired since.
	err = h.db.Synced(ctx)
	if errors.Is(err, ErrFenced) {
		err = h.db.Reopen(ctx)
	}
	if err != nil {
		return nil, "", errors.Join(err, i.release(id, h))
	}
	return h, Running, nil
}

// whyGone tells a database that has ended from a remote that has lost it: what ends one stays in its log for ever (R5).
func (i *Instances) whyGone(ctx context.Context, b *catalog.Binding, gone error) error {
	head, err := i.c.log(b.Name).HeadHeader(ctx)
	if err != nil {
		return err
	}
	if head == nil {
		return fmt.Errorf("%w: nothing is left of database %s (%s) in %s, not even its end", ErrRemoteLost, b.Name, b.ID, i.c.store)
	}
	return gone
}

// make gives the key its next database, behind b. ours: this call has made it, and nobody else.
func (i *Instances) make(ctx context.Context, key string, b *catalog.Binding, w want) (_ *catalog.Binding, ours bool, err error) {
	for generation := b.Generation + 1; ; {
		// (1) The intent: whoever comes along from here on makes this very database.
		if b.Kind != catalog.Bind {
			name := databaseName(key, generation, "")
			next := catalog.Binding{Kind: catalog.Bind, Generation: generation, Name: name}
			if w.template != "" {
				next.Source = &catalog.Point{Name: w.template}
			}
			if b, _, err = i.append(ctx, key, b, next); err != nil {
				return nil, false, err
			}
			fault("ensure:bind")
		}
		if b.Kind != catalog.Bind { // others are further
			if b.Kind == catalog.Release || b.Generation < generation {
				continue
			}
			return b, false, nil
		}
		// (2) What this one takes the place of is not written to any more.
		if b.Retire != nil {
			if err := i.retire(ctx, b.Retire); err != nil {
				return nil, false, err
			}
			fault("replace:retired")
		}
		// (3) The database, once for this entry of the key's log.
		if b.Source != nil {
			w.create.PageSize = 0 // the source's
		}
		w.create.IdempotencyKey = fmt.Sprintf("instance %s %d", key, b.Slot)
		w.create.IfNotExists, w.create.instance = false, key
		var d *Database
		switch source := b.Source; {
		case source == nil:
			d, err = i.c.Create(ctx, b.Name, w.create)
		case source.Slot == 0:
			d, err = i.c.Fork(ctx, source.Name, b.Name, ForkOptions{CreateOptions: w.create})
		default:
			d, err = i.c.Fork(ctx, source.Name, b.Name, ForkOptions{CreateOptions: w.create, At: Point{ID: source.ID, Slot: source.Slot}})
		}
		fault("ensure:created")
		switch {
		case err == nil:
		case errors.Is(err, ErrExists):
			// The name is another database's: another name.
			var tag [4]byte
			rand.Read(tag[:])
			if b, _, err = i.append(ctx, key, b, catalog.Binding{Kind: catalog.Bind, Generation: b.Generation, Name: databaseName(key, b.Generation, fmt.Sprintf("-%x", tag)), Source: b.Source, Retire: b.Retire, DeleteRetired: b.DeleteRetired}); err != nil {
				return nil, false, err
			}
			continue
		case errors.Is(err, ErrIdempotency):
			// Made for this entry, by others with other options or long ago, and ended perhaps: the next one.
			if b, _, err = i.append(ctx, key, b, catalog.Binding{Kind: catalog.Release, Generation: b.Generation}); err != nil {
				return nil, false, err
			}
			generation = max(generation, b.Generation+1)
			continue
		default:
			return nil, false, i.giveUp(ctx, key, b, err)
		}
		// (4) What is not wanted any more: that incarnation and no other.
		if b.Retire != nil && b.DeleteRetired && b.Retire.ID != d.ID {
			if err := i.c.deleteOnly(ctx, b.Retire.Name, b.Retire.ID); err != nil && !errors.Is(err, ErrNotFound) {
				return nil, false, fmt.Errorf("delete the old database %s: %w", b.Retire.Name, err)
			}
			fault("replace:deleted")
		}
		// (5) The key has it.
		there, ours, err := i.append(ctx, key, b, catalog.Binding{Kind: catalog.Bound, Generation: b.Generation, Name: d.Name, ID: d.ID})
		if err != nil {
			return nil, false, err
		}
		fault("ensure:bound")
		if there.ID == d.ID {
			return there, ours, nil
		}
		// Somebody gave the intent up, or went on from it. What was made here can get no key any more: nobody else's binding can stand where ours was to be.
		if err := i.c.deleteOnly(ctx, d.Name, d.ID); err != nil && !errors.Is(err, ErrNotFound) {
			return nil, false, fmt.Errorf("delete %s, which was made for a key that has moved on: %w", d.Name, err)
		}
		if there.Kind != catalog.Bind && (w.replaces || there.Kind != catalog.Release) {
			return there, false, nil
		}
		b = there
	}
}

// giveUp takes an intent back that can never be fulfilled, so that the next Ensure begins anew, and returns cause.
func (i *Instances) giveUp(ctx context.Context, key string, b *catalog.Binding, cause error) error {
	never := false
	for _, kind := range []error{ErrNotFound, ErrPointGone, ErrName} { // of the source. What is wrong with the caller's own options says nothing of it
		never = never || errors.Is(cause, kind)
	}
	if !never {
		return cause
	}
	next := catalog.Binding{Kind: catalog.Release, Generation: b.Generation - 1}
	if b.Retire != nil { // frozen, and the key's as before
		next.Kind, next.Name, next.ID = catalog.Bound, b.Retire.Name, b.Retire.ID
	}
	_, _, err := i.append(ctx, key, b, next)
	return errors.Join(cause, err)
}

// databaseName is the name of a key's database: the key, and for later generations the generation behind it. Names have the length of keys: a long key is cut, which the tag makes up for.
func databaseName(key string, generation uint64, tag string) string {
	suffix := ""
	if generation > 1 || tag != "" {
		suffix = fmt.Sprintf(".g%d%s", generation, tag)
	}
	return key[:min(len(key), 200-len(suffix))] + suffix
}

// failing notes that a key's database does not open because of cause, and gives the key another one when that was asked for and has lasted long enough.
func (i *Instances) failing(ctx context.Context, key string, b *catalog.Binding, o EnsureOptions, cause error) (replaced bool, _ error) {
	if b.Kind != catalog.Failing {
		reason := cause.Error()
		there, _, err := i.append(ctx, key, b, catalog.Binding{Kind: catalog.Failing, Generation: b.Generation, Name: b.Name, ID: b.ID, Since: time.Now().UTC(), Reason: reason[:min(len(reason), 500)]})
		if err != nil {
			return false, errors.Join(cause, err)
		}
		if b = there; b.Kind != catalog.Failing {
			return false, nil // the key has moved on
		}
	}
	lasted := time.Since(b.Since)
	if o.ReplaceAfter > 0 && lasted >= o.ReplaceAfter && o.ExpectID == "" && o.Adopt == "" {
		_, ours, err := i.make(ctx, key, b, want{create: o.Create, template: o.Template})
		return ours, err
	}
	retry := min(max(lasted/4, time.Second), 30*time.Second) // longer the longer it lasts
	if o.ReplaceAfter > 0 && lasted < o.ReplaceAfter {
		retry = min(retry, o.ReplaceAfter-lasted)
	}
	return false, &RestartingError{Key: key, RetryAfter: retry, Since: b.Since, Err: cause}
}

// migrate brings the database to a version, once. It returns the version that it has, which the remote has too.
func (db *DB) migrate(ctx context.Context, version string, fn func(context.Context, *sql.Tx, string) error) (string, error) {
	epoch := db.h.epoch.Load()
	from, err := db.version(ctx, db.DB)
	if err == nil && version != "" && version != from {
		from, err = db.migrateTx(context.WithValue(ctx, inStep{db.h}, true), version, fn)
	}
	if err != nil {
		return "", err
	}
	if version == "" {
		version = from
	}
	if commits, _ := db.h.pending(); commits == 0 && db.h.epoch.Load() == epoch { // an Ensure acknowledges what it found as little as Open does
		return version, nil
	}
	return version, db.syncedSince(ctx, epoch)
}

// migrateTx is the transaction. It returns the version that was there.
func (db *DB) migrateTx(ctx context.Context, version string, fn func(context.Context, *sql.Tx, string) error) (from string, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err == nil {
		_, err = tx.ExecContext(ctx, markTx)
	}
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	if from, err = db.version(ctx, tx); err != nil || version == from {
		return from, err
	}
	if fn != nil {
		err = fn(ctx, tx, from)
	} else {
		err = nil
	}
	if err == nil {
		err = stillInTx(ctx, tx)
	}
	if err != nil {
		return "", fmt.Errorf("migrate from version %q to %q: %w", from, version, err)
	}
	if _, err := tx.ExecContext(ctx, metaTable); err != nil {
		return "", err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO _tonbo_meta VALUES('version', ?) ON CONFLICT DO UPDATE SET value = excluded.value`, version); err != nil {
		return "", err
	}
	fault("ensure:migrated")
	return from, tx.Commit()
}

// version is the database's, "" for one without.
func (db *DB) version(ctx context.Context, in interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (version string, err error) {
	err = in.QueryRowContext(ctx, `SELECT name FROM sqlite_schema WHERE name = '_tonbo_meta'`).Scan(new(string))
	if err == nil {
		err = in.QueryRowContext(ctx, `SELECT value FROM _tonbo_meta WHERE key = 'version'`).Scan(&version)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return version, err
}
