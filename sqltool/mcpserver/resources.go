package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/sqltool"
)

// The resources. No name of a database is in them: there is one.
const (
	SchemaURI  = "tonbo://database/schema"  // what describe_schema answers
	HistoryURI = "tonbo://database/history" // [HistoryEntry], the newest first
)

// HistoryEntry is a point of the database, in the resource history. Its label is one that checkpoint gave: the program's are left out, and so is who wrote it.
type HistoryEntry struct {
	Slot  uint64 `json:"slot"` // of the log
	Time  string `json:"time"` // RFC 3339
	Kind  string `json:"kind"` // create, claim, commit, base, rewind, close
	Label string `json:"label,omitempty"`
	Pages int64  `json:"pages"` // size of the database after it
}

// historyLimit is how many entries the resource has.
const historyLimit = 200

// errUnavailable is all that a client is told of an error of the program's.
var errUnavailable = errors.New("the database is not available at present")

func (s *Server) addResources() {
	for _, t := range s.tools {
		if t.Name == DescribeSchema {
			s.mcp.AddResource(&mcp.Resource{URI: SchemaURI, Name: "schema", Title: "The schema", Description: "The SQL of tables, views, indexes and triggers.", MIMEType: "application/json"},
				s.resource(SchemaURI, func(ctx context.Context) ([]byte, error) {
					s.refresh(ctx)
					return t.Call(ctx, nil)
				}))
		}
	}
	s.mcp.AddResource(&mcp.Resource{URI: HistoryURI, Name: "history", Title: "The history", Description: "The points of the database that are kept, the newest first.", MIMEType: "application/json"},
		s.resource(HistoryURI, s.history))
}

func (s *Server) resource(uri string, read func(context.Context) ([]byte, error)) mcp.ResourceHandler {
	return func(ctx context.Context, _ *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		text, err := read(ctx)
		if err != nil {
			s.note(ctx, uri, err)
			var model *sqltool.Error
			if errors.As(err, &model) {
				return nil, model
			}
			return nil, errUnavailable
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "application/json", Text: string(text)}}}, nil
	}
}

func (s *Server) history(ctx context.Context) ([]byte, error) {
	entries := []HistoryEntry{}
	for h, err := range s.c.History(ctx, s.db.Status().Name) {
		if err != nil {
			return nil, err
		}
		entries = append(entries, s.entry(h))
		if len(entries) == historyLimit {
			break
		}
	}
	return json.Marshal(entries)
}

func (s *Server) entry(h tonbo.HistoryEntry) HistoryEntry {
	e := HistoryEntry{Slot: h.Slot, Time: h.Time.UTC().Format(time.RFC3339Nano), Kind: h.Kind, Pages: h.Pages}
	if label, ok := strings.CutPrefix(h.Label, s.o.LabelPrefix); ok {
		e.Label = label
	}
	return e
}
