package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/remote"
)

// Exit codes. They are part of the interface.
const (
	exitOK        = 0
	exitFailed    = 1
	exitUsage     = 2
	exitThreshold = 3 // database count --max, janitor --max
	exitNotFound  = 4
	exitConflict  = 5 // fenced, or at odds with how the database is
)

// usageError is a command line that cannot be.
type usageError struct {
	err     error
	command string // "": no command's help tells more
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{err: fmt.Errorf(format, args...)} }

// thresholdError is a count above what was allowed. The answer was given all the same.
type thresholdError struct {
	n, most int
	of      string // " left", or nothing
}

func (e *thresholdError) Error() string {
	return fmt.Sprintf("%s%s, more than %d", several(e.n, "database"), e.of, e.most)
}

// outcomes maps errors to exit codes, and to the codes of --json. The first that fits is it.
var outcomes = []struct {
	err  error
	exit int
	code string
	hint string // what to do about it from here: NAME stands for the database, KEY for the instance
}{
	{remote.ErrNoBucket, exitFailed, "no_bucket", "make it, or correct --url"}, // not exitNotFound: it says nothing about a database
	{tonbo.ErrPointGone, exitNotFound, "point_gone", "tonbo log NAME lists the points"},
	{tonbo.ErrFenced, exitConflict, "fenced", ""},
	{tonbo.ErrExpired, exitConflict, "expired", "tonbo database update NAME --ttl 1h gives it a later expiry"},
	{tonbo.ErrDeleted, exitConflict, "deleted", "tonbo database delete NAME finishes an interrupted deletion"},
	{tonbo.ErrBusy, exitConflict, "busy", ""},
	{tonbo.ErrLocked, exitConflict, "locked", "--dir names another directory"},
	{tonbo.ErrExists, exitConflict, "name_taken", "choose another name, or take the one that is there with --if-not-exists"},
	{tonbo.ErrIdempotency, exitConflict, "idempotency_conflict", "another request needs another --idempotency-key"},
	{tonbo.ErrProtected, exitConflict, "protected", "tonbo database update NAME --protected=false takes the protection away"},
	{tonbo.ErrFrozen, exitConflict, "frozen", "fork it, or tonbo database thaw NAME"},
	{tonbo.ErrKeyBound, exitConflict, "key_bound", "tonbo instance release lets go of it"},
	{tonbo.ErrTargetChanged, exitConflict, "target_changed", "tonbo instance get KEY shows what it has"},
	{tonbo.ErrConflict, exitConflict, "conflict", ""},
	{tonbo.ErrRestarting, exitFailed, "instance_restarting", "tonbo verify tells what is damaged, tonbo instance replace KEY gives the key another database"},
	{tonbo.ErrNotFound, exitNotFound, "not_found", "tonbo database list shows what there is; is it the right --url?"},
	{tonbo.ErrName, exitUsage, "invalid_name", ""},
	{tonbo.ErrInvalid, exitUsage, "invalid_option", ""},
	{tonbo.ErrUnsynced, exitFailed, "unsynced", "run it again"},
	{tonbo.ErrUnauthorized, exitFailed, "unauthorized", "give credentials that are right and have not expired; a clock that is wrong is refused too"},
	{tonbo.ErrForbidden, exitFailed, "forbidden", "docs/operations.md tells which rights the key needs"},
	{tonbo.ErrQuota, exitFailed, "quota", "make room in the store"},
	{tonbo.ErrLimit, exitFailed, "database_limit", "delete some, or run tonbo janitor"},
	{tonbo.ErrCorrupt, exitFailed, "corrupt", ""},
	{tonbo.ErrForeignFile, exitFailed, "foreign_file", "--dir names another directory"},
	{tonbo.ErrRemoteLost, exitFailed, "remote_lost", ""},
	{tonbo.ErrStoreUnfit, exitFailed, "store_unfit", ""},
	{tonbo.ErrTooLarge, exitFailed, "too_large", "--max-rows lets more in"},
	{tonbo.ErrUnsupported, exitFailed, "unsupported", ""},
	{remote.ErrUnknown, exitFailed, "unreachable", "check the endpoint, the proxy and the network"},
	{context.DeadlineExceeded, exitFailed, "timeout", ""},
}

// outcome is what an error comes to.
func (a *app) outcome(ctx context.Context, err error) (exit int, code, message string) {
	message = err.Error()
	var usage *usageError
	var threshold *thresholdError
	var sql *sqlite3.Error
	switch {
	case errors.As(err, &usage):
		if usage.command != "" {
			message += "; see " + usage.command + " --help"
		}
		return exitUsage, "usage", message
	case errors.As(err, &threshold):
		return exitThreshold, "over_threshold", message
	case ctx.Err() != nil:
		return exitFailed, "interrupted", "interrupted: " + message
	}
	for _, o := range outcomes {
		if !errors.Is(err, o.err) {
			continue
		}
		if o.hint != "" {
			message += "; " + a.named(o.hint)
		}
		return o.exit, o.code, message
	}
	if errors.As(err, &sql) {
		return exitFailed, "sql_error", message
	}
	return exitFailed, "failed", message
}

// named puts the names that are known into a hint.
func (a *app) named(hint string) string {
	if a.subject != "" {
		hint = strings.Replace(hint, "NAME", a.subject, 1)
	}
	if a.key != "" {
		hint = strings.Replace(hint, "KEY", a.key, 1)
	}
	return hint
}

// fail tells what went wrong, in one line, and returns the exit code.
func (a *app) fail(ctx context.Context, err error, args []string) int {
	exit, code, message := a.outcome(ctx, err)
	a.complain(code, message, args)
	return exit
}

// complain writes an error to stderr.
func (a *app) complain(code, message string, args []string) {
	message = oneLine(message)
	if !a.json && !a.running { // the flags were not read to their end
		if i := slices.Index(args, "--"); i >= 0 {
			args = args[:i]
		}
		a.json = slices.Contains(args, "--json")
	}
	if !a.json {
		fmt.Fprintf(a.stderr, "tonbo: %s\n", plain(message))
		return
	}
	e := json.NewEncoder(a.stderr)
	e.SetEscapeHTML(false)
	type body struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	e.Encode(struct {
		Error body `json:"error"`
	}{body{code, message}})
}

// oneLine puts what several lines say into one.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "; ")
}
