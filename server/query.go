package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/sqltool"
)

// Bounds of a query. The rest are sqltool's defaults.
const (
	queryTime = 10 * time.Second
	queryRows = 1000
	queryJSON = 1 << 20 // bytes of rows
	queryCell = 64 << 10
)

// query runs one statement that reads, as of a point. Nothing is taken over; what an owner has not shipped is not seen.
func (s *Server) query(c *call) error {
	var b struct {
		SQL string `json:"sql"`
		At  string `json:"at"`
	}
	if err := c.body(&b); err != nil {
		return err
	}
	point, err := at("at", b.At)
	if err != nil {
		return err
	}
	release, err := s.slot(c)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(c.ctx, s.queryTime)
	defer cancel()
	out, err := s.runQuery(ctx, c.name(), point, b.SQL)
	var bad *sqltool.Error
	switch {
	case ctx.Err() != nil && c.ctx.Err() == nil: // whatever it said of it
		return &problem{Status: http.StatusRequestTimeout, Code: "query_timeout", Detail: "a query may take " + s.queryTime.String() + ", the fetching of its pages included: ask for less at a time"}
	case errors.As(err, &bad):
		return &problem{Status: http.StatusBadRequest, Code: "sql_error", Detail: bad.Error()}
	case err != nil:
		return err
	}
	rows, err := rowsOf(out)
	if err != nil {
		return err
	}
	return c.data(http.StatusOK, rows)
}

func (s *Server) runQuery(ctx context.Context, name string, point tonbo.At, sql string) (out json.RawMessage, err error) {
	o := s.o.Options
	o.Remote, o.At, o.Follow, o.Hydration = s.store, point, 0, tonbo.HydrateNone
	db, err := tonbo.OpenReadOnly(ctx, name, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// Time is ctx's: the tool's own limit would not tell a query that took long from one that was wrong.
	tool, err := sqltool.New(db, sqltool.Limits{ReadOnly: true, Rows: queryRows, Bytes: queryJSON, CellBytes: queryCell, Time: 2 * s.queryTime})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tool.Close()) }()
	input, err := json.Marshal(map[string]string{"sql": sql})
	if err != nil {
		return nil, err
	}
	return tool.Call(ctx, input)
}
