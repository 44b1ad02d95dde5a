package server_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// document is the part of an OpenAPI document that is looked at here. internal/tools/openapi validates the whole.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct {
		Schemas   map[string]any
		Responses map[string]struct{ Description string }
	}
}

type operation struct {
	OperationID string
	Parameters  []struct {
		Name, In string
	}
	Responses map[string]struct {
		Ref string `json:"$ref"`
	}
}

func openapi(t *testing.T, f *front) (d document, raw []byte) {
	t.Helper()
	a := f.want(http.StatusOK, "GET", "/openapi.json", "", "")
	if err := json.Unmarshal(a.Body, &d); err != nil {
		t.Fatal(err)
	}
	return d, a.Body
}

func TestOpenAPIHasEveryRouteAndNoOther(t *testing.T) {
	w := newWorld(t)
	d, _ := openapi(t, w.front)
	has := map[string]bool{}
	for path, ops := range d.Paths {
		for method, op := range ops {
			has[strings.ToUpper(method)+" "+path+" "+op.OperationID] = true
		}
	}
	for _, r := range w.s.Routes() {
		r = strings.ReplaceAll(r, "...}", "}")
		if !has[r] {
			t.Errorf("openapi.json lacks %s", r)
		}
		delete(has, r)
	}
	for r := range has {
		t.Errorf("openapi.json has %s, which is no route", r)
	}
}

func TestOpenAPIResolves(t *testing.T) {
	w := newWorld(t)
	d, raw := openapi(t, w.front)
	if !strings.HasPrefix(d.OpenAPI, "3.0.") {
		t.Error(d.OpenAPI)
	}
	for _, m := range regexp.MustCompile(`"\$ref":\s*"([^"]+)"`).FindAllStringSubmatch(string(raw), -1) {
		kind, name, _ := strings.Cut(strings.TrimPrefix(m[1], "#/components/"), "/")
		_, schema := d.Components.Schemas[name]
		_, response := d.Components.Responses[name]
		if !(kind == "schemas" && schema || kind == "responses" && response) {
			t.Errorf("%s leads nowhere", m[1])
		}
	}
	ids := map[string]bool{}
	for path, ops := range d.Paths {
		for method, op := range ops {
			if ids[op.OperationID] || op.OperationID == "" {
				t.Errorf("%s %s: operationId %q", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
			for _, m := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(path, -1) {
				if !slices.ContainsFunc(op.Parameters, func(p struct{ Name, In string }) bool { return p.Name == m[1] && p.In == "path" }) {
					t.Errorf("%s %s does not describe %s", method, path, m[1])
				}
			}
			if strings.HasPrefix(path, "/v1/") && op.Responses["401"].Ref == "" {
				t.Errorf("%s %s has no 401", method, path)
			}
		}
	}
}
