package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/sqltool"
)

// function is what SDKs for agents want of a tool: three texts for the model's list, and a function from the arguments, as the model wrote them, to the text that it gets back.
type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // JSON Schema; some call it input_schema
	call        func(context.Context, json.RawMessage) (json.RawMessage, error)
}

// functions are the tools of one database. Which one that is stands in closures: there is no argument for it. close them before the database.
func functions(c *tonbo.Client, db *tonbo.DB, start tonbo.Source) (all []function, close func() error, err error) {
	limits := sqltool.Limits{Rows: 20, Time: time.Second}
	run, err := sqltool.New(db, limits)
	if err != nil {
		return nil, nil, err
	}
	describe, err := sqltool.DescribeSchema(db, sqltool.Limits{})
	if err != nil {
		return nil, nil, err
	}
	diff, err := sqltool.Diff(c, db, "model/", start, sqltool.Limits{Rows: 3})
	if err != nil {
		return nil, nil, err
	}
	for _, t := range []*sqltool.Tool{run, describe, diff, sqltool.Checkpoint(db, "model/"), sqltool.Rewind(c, db, "model/", run, describe)} {
		all = append(all, function{t.Name, t.Description, t.Schema, t.Call})
	}
	return all, func() error { return errors.Join(run.Close(), describe.Close()) }, nil
}

// dispatch runs one tool call. text is what the model gets, whatever happened; err is the program's alone, and nil when the model was at fault.
func dispatch(ctx context.Context, all []function, call toolCall) (text string, err error) {
	for _, f := range all {
		if f.Name != call.Name {
			continue
		}
		out, err := f.call(ctx, call.Arguments)
		var model *sqltool.Error
		if errors.As(err, &model) { // it is in the text: the model tries again
			err = nil
		}
		return string(out), err
	}
	return `{"error":{"message":"there is no such tool"}}`, nil
}
