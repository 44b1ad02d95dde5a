package sqltool

import (
	"errors"
	"reflect"
	"unsafe"

	"github.com/ncruces/go-sqlite3"
)

// How many steps of SQLite's machine there are between two calls of the progress handler. https://sqlite.org/c3ref/progress_handler.html
//
// The driver sets 1000, and exports no way to change that. A statement without functions but those in cheap does little in a step, and 100 cost it two hundredths. One with others may do a call on half a megabyte in each few steps,
// which takes milliseconds, and tens of them with many paths into a JSON text: a hundred steps would be more than the 100 ms in which a call is to end.
const (
	progressSteps = 100
	carefulSteps  = 10
)

// setProgress makes the driver's progress handler run each so many steps. It calls the very function that the driver calls when it opens a connection, which takes reflection, since the connection keeps it to itself. Another version of the
// driver may have it elsewhere: then there is no tool rather than one that does not stop.
func setProgress(c *sqlite3.Conn, steps int32) error {
	missing := errors.New("sqltool: this version of github.com/ncruces/go-sqlite3 has its progress handler elsewhere: see progress.go")
	conn := reflect.ValueOf(c).Elem()
	wrapper, handle := conn.FieldByName("wrp"), conn.FieldByName("handle")
	if !wrapper.IsValid() || wrapper.Kind() != reflect.Pointer || !handle.IsValid() || handle.Kind() != reflect.Uint32 {
		return missing
	}
	w, ok := reflect.NewAt(wrapper.Type(), unsafe.Pointer(wrapper.UnsafeAddr())).Elem().Interface().(interface {
		Xsqlite3_progress_handler_go(db, steps int32)
	})
	if !ok {
		return missing
	}
	w.Xsqlite3_progress_handler_go(int32(handle.Uint()), steps)
	return nil
}
