package sqltool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo"
)

// Error is what went wrong with a model's input, in words for the model. Nothing in it tells of the program.
type Error struct {
	Message   string `json:"message"`
	Near      string `json:"near,omitempty"`      // the SQL from where it went wrong
	Line      int    `json:"line,omitempty"`      // of near, from 1
	Column    int    `json:"column,omitempty"`    // in bytes, from 1
	Statement int    `json:"statement,omitempty"` // which one of several, from 1
	Hint      string `json:"hint,omitempty"`
}

func (e *Error) Error() string {
	s := "sql tool: " + e.Message
	if e.Near != "" {
		s += fmt.Sprintf(", at line %d, column %d", e.Line, e.Column)
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *Error) copy() *Error {
	c := *e
	return &c
}

const (
	hintLess   = "ask for less at a time: add WHERE and LIMIT, and end each recursion"
	hintUndone = "what the statement had changed was undone"
)

// unsynced is Synced's error after a write.
type unsynced struct{ error }

func (e unsynced) Unwrap() error { return e.error }

// panicked is what the driver panicked with.
type panicked struct{ value any }

func (p panicked) Error() string {
	return fmt.Sprintf("sqltool: SQLite's driver panicked: %v", p.value)
}

// outOfMemory tells whether it is the driver's way to say that SQLite is out of memory.
func (p panicked) outOfMemory() bool {
	err, ok := p.value.(error)
	return ok && strings.Contains(err.Error(), "out of memory")
}

// bounds tells whether it is an index out of range.
func (p panicked) bounds() bool {
	_, ok := p.value.(runtime.Error)
	return ok
}

// public is the part of an error that the model sees.
func public(err error) *Error {
	var e *Error
	var u unsynced
	switch {
	case err == nil:
		return nil
	case errors.As(err, &u):
		return &Error{Message: "the change was made, but is not confirmed to be durable"}
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Message: "the call was cancelled"}
	case errors.Is(err, tonbo.ErrFenced), errors.Is(err, tonbo.ErrDeleted), errors.Is(err, tonbo.ErrExpired), errors.Is(err, tonbo.ErrClosed):
		return &Error{Message: "the database is not available any more"}
	}
	return &Error{Message: "the database is not available at present"}
}

// explain tells an error of the model's from one of the program's.
func (x *execution) explain(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	var p panicked
	if errors.As(err, &p) {
		x.spoiled = true
		if p.outOfMemory() {
			return x.undone(x.memory())
		}
		return err
	}
	var code sqlite3.ErrorCode
	if !errors.As(err, &code) {
		return err
	}
	at := x.locate(err)
	if code == sqlite3.IOERR && x.budget.stopped.Load() {
		x.spoiled = true
		code = sqlite3.INTERRUPT
	}
	switch code {
	case sqlite3.INTERRUPT:
		cause := context.Cause(x.budget)
		if cause == nil {
			return err
		}
		return x.undone(cause)
	case sqlite3.AUTH:
		if at.Message = x.auth.denied; at.Message == "" {
			at.Message = "the statement is not available"
		}
	case sqlite3.ERROR:
		if x.auth.denied != "" {
			at.Message = x.auth.denied // "not authorized to use function" and other words for it
			break
		}
		at.Message = message(err)
		at.Hint = x.hint(at)
	case sqlite3.CONSTRAINT, sqlite3.MISMATCH, sqlite3.RANGE, sqlite3.ABORT, sqlite3.SCHEMA:
		at.Message = message(err)
	case sqlite3.TOOBIG:
		at.Message = fmt.Sprintf("a string, blob or row is longer than %d bytes, or the statement is too large", x.l.ValueBytes)
	case sqlite3.NOMEM:
		x.spoiled = true
		return x.undone(x.memory())
	case sqlite3.FULL:
		at.Message = fmt.Sprintf("there is no room: a call may add %d bytes to the database", x.l.GrowBytes)
		return x.undone(at)
	case sqlite3.BUSY, sqlite3.LOCKED:
		at.Message = "the database is busy: another connection is writing"
		at.Hint = "try again"
	case sqlite3.READONLY:
		if why := x.reason(err); why != err {
			x.spoiled = true
			return why
		}
		at.Message = "the database can only be read"
	default:
		x.spoiled = true
		return x.reason(err)
	}
	return at
}

// reason is the error behind a private result code of package vfs.
func (x *execution) reason(err error) error {
	if r, ok := x.dc.(interface{ Reason(error) error }); ok {
		return r.Reason(err)
	}
	return err
}

// undone tells the model that a write that was stopped has left nothing, where that is certain: a strict COMMIT may have reached the remote.
func (x *execution) undone(err error) error {
	var e *Error
	if !x.writing || x.db.Status().Strict || !errors.As(err, &e) {
		return err
	}
	e = e.copy()
	if e.Hint != "" {
		e.Hint += "; "
	}
	e.Hint += hintUndone
	return e
}

func (x *execution) memory() *Error {
	return &Error{Message: fmt.Sprintf("out of memory: a call may use %d MiB", x.l.Memory>>20), Hint: hintLess}
}

// message is SQLite's own text, without the driver's words before it.
func message(err error) string {
	var e *sqlite3.Error
	if !errors.As(err, &e) {
		return strings.TrimPrefix(err.Error(), "sqlite3: ")
	}
	s := e.Error()
	if rest, ok := strings.CutPrefix(s, e.Code().Error()+": "); ok {
		return clip(rest, 300)
	}
	return clip(strings.TrimPrefix(s, "sqlite3: "), 300)
}

// locate finds the place in the SQL.
func (x *execution) locate(err error) *Error {
	at := &Error{}
	var e *sqlite3.Error
	if !errors.As(err, &e) || e.SQL() == "" || !strings.HasSuffix(x.sql, e.SQL()) {
		return at
	}
	before := x.sql[:len(x.sql)-len(e.SQL())]
	at.Line = strings.Count(before, "\n") + 1
	at.Column = len(before) - (strings.LastIndexByte(before, '\n') + 1) + 1
	line, _, _ := strings.Cut(e.SQL(), "\n")
	at.Near = clip(line, 40)
	return at
}
