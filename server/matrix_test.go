package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/server"
)

// holder is who asks. secret makes a key of its kind; reach is the name that a narrowed one has to reach.
type holder struct {
	name     string
	secret   func(w *world, reach string) string
	narrowed bool
	readOnly bool
	refused  bool // its key is not in force
}

func holders(w *world) []holder {
	fixed := func(secret string) func(*world, string) string {
		return func(*world, string) string { return secret }
	}
	member := w.key(`{"name":"m","agent":"matrix","role":"member"}`)
	revoked := w.want(201, "POST", "/v1/api-keys", w.owner, `{"name":"revoked"}`)
	w.want(204, "DELETE", "/v1/api-keys/"+revoked.text("id"), w.owner, "")
	rotated := w.want(201, "POST", "/v1/api-keys", w.owner, `{"name":"rotated"}`)
	w.want(200, "POST", "/v1/api-keys/"+rotated.text("id")+"/rotate", w.owner, "")
	expired := w.key(`{"name":"expired","ttl":0.001}`)
	prefix, prefixRO := w.key(`{"name":"p","database_prefixes":["run-"]}`), w.key(`{"name":"p","database_prefixes":["run-"],"read_only":true}`)
	named := func(rest string) func(*world, string) string {
		return func(w *world, reach string) string {
			return w.want(201, "POST", "/v1/api-keys", member, `{"name":"n","databases":["`+reach+`"]`+rest+`}`).text("secret")
		}
	}
	time.Sleep(2 * time.Millisecond) // a key's whole life
	return []holder{
		{name: "owner", secret: fixed(w.owner)},
		{name: "admin", secret: fixed(w.key(`{"name":"a","user":"alice","role":"admin"}`))},
		{name: "admin agent", secret: fixed(w.key(`{"name":"a","agent":"ops","role":"admin"}`))},
		{name: "member agent", secret: fixed(member)},
		{name: "owner, read-only", secret: fixed(w.key(`{"name":"r","read_only":true}`)), readOnly: true},
		{name: "by prefix", secret: fixed(prefix), narrowed: true},
		{name: "by prefix, read-only", secret: fixed(prefixRO), narrowed: true, readOnly: true},
		{name: "by name", secret: named(""), narrowed: true},
		{name: "by name, read-only", secret: named(`,"read_only":true`), narrowed: true, readOnly: true},
		{name: "none", secret: fixed(""), refused: true},
		{name: "made up", secret: fixed("tbo_0123456789abcdefghij_" + strings.Repeat("a", 43)), refused: true},
		{name: "no secret at all", secret: fixed("secret"), refused: true},
		{name: "revoked", secret: fixed(revoked.text("secret")), refused: true},
		{name: "rotated", secret: fixed(rotated.text("secret")), refused: true},
		{name: "expired", secret: fixed(expired), refused: true},
	}
}

// cell is a route, and what it answers who may.
type cell struct {
	id, method, path string // NAME stands for the name
	body             string // FRESH for a name that is free, DATABASE for a database that no key has
	class            string // read, write, manage, list or account
	there, missing   int    // when what is named exists, and when it does not
}

var cells = []cell{
	{"createDatabase", "POST", "/v1/databases", `{"name":"NAME"}`, "manage", 409, 201},
	{"getDatabase", "GET", "/v1/databases/NAME", "", "read", 200, 404},
	{"updateDatabase", "PATCH", "/v1/databases/NAME", `{"metadata":{"a":"b"}}`, "manage", 200, 404},
	{"deleteDatabase", "DELETE", "/v1/databases/NAME", "", "manage", 204, 404},
	{"forkDatabase", "POST", "/v1/databases/NAME/fork", `{"name":"FRESH"}`, "manage", 201, 404},
	{"rewindDatabase", "POST", "/v1/databases/NAME/rewind", `{"at":"slot:1"}`, "manage", 200, 404},
	{"checkpointDatabase", "POST", "/v1/databases/NAME/checkpoints", `{"label":"x"}`, "write", 201, 404},
	{"getHistory", "GET", "/v1/databases/NAME/history", "", "read", 200, 404},
	{"exportDatabase", "GET", "/v1/databases/NAME/export", "", "read", 200, 404},
	{"getDatabaseUsage", "GET", "/v1/databases/NAME/usage", "", "read", 200, 404},
	{"queryDatabase", "POST", "/v1/databases/NAME/query", `{"sql":"SELECT 1"}`, "read", 200, 404},
	{"getInstance", "GET", "/v1/instances/NAME", "", "read", 200, 404},
	{"updateInstance", "PATCH", "/v1/instances/NAME", `{"metadata":{"a":"b"}}`, "manage", 200, 404},
	{"releaseInstance", "DELETE", "/v1/instances/NAME", "", "manage", 204, 404},
	{"bindInstance", "PUT", "/v1/instances/NAME/binding", `{"database":"DATABASE"}`, "manage", 409, 200},
	{"ensureInstance", "POST", "/v1/instances/NAME/ensure", "", "manage", 200, 201},
	{"replaceInstance", "POST", "/v1/instances/NAME/replace", `{}`, "manage", 201, 201},
	{"listDatabases", "GET", "/v1/databases", "", "list", 200, 200},
	{"getUsage", "GET", "/v1/usage", "", "account", 200, 200},
	{"listKeys", "GET", "/v1/api-keys", "", "account", 200, 200},
	{"makeKey", "POST", "/v1/api-keys", `{"name":"made"}`, "keys", 201, 201},
	{"listDatabaseObjects", "GET", "/v1/databases/NAME/objects?prefix=db/NAME/log/", "", "objects", 200, 200},
	{"getDatabaseObject", "GET", "/v1/databases/NAME/objects/db/NAME/log/fffffffffffffffe", "", "objects", 200, 404},
	{"putDatabaseObject", "PUT", "/v1/databases/NAME/objects/db/NAME/seg/" + segment, "junk", "objects", 201, 201},
	{"deleteDatabaseObject", "DELETE", "/v1/databases/NAME/objects/db/NAME/seg/" + segment, "", "objects", 204, 204},
	{"listAccountObjects", "GET", "/v1/objects?prefix=db/NAME/log/", "", "objects", 200, 200},
	{"getAccountObject", "GET", "/v1/objects/db/NAME/log/fffffffffffffffe", "", "objects", 200, 404},
	{"putAccountObject", "PUT", "/v1/objects/db/NAME/seg/" + segment, "junk", "objects", 201, 201},
	{"deleteAccountObject", "DELETE", "/v1/objects/db/NAME/seg/" + segment, "", "objects", 204, 204},
}

const segment = "0000000000000001-00112233445566778899aabbccddeeff"

// headers are those that the route wants.
func (c cell) headers() []string {
	if c.class == "objects" && c.method == "PUT" {
		return []string{"If-None-Match", "*"}
	}
	return nil
}

// others are routes that the cells above do not have: public ones, and those about one key (TestWhoMayDoWhatToWhichKey).
func others(id string) bool {
	return slices.Contains([]string{"health", "ready", "metrics", "openapi", "revokeKey", "rotateKey"}, id)
}

// expect is the contract, said once more.
func expect(h holder, c cell, beyond, there bool) (status int, code string) {
	switch {
	case h.refused:
		return 401, "unauthorized"
	case c.class == "objects":
		return expectObject(h, c, beyond, there)
	case h.narrowed && beyond:
		return 404, "not_found"
	case h.narrowed && (c.class == "manage" || c.class == "account" || c.class == "keys"):
		return 403, "key_narrowed"
	case h.readOnly && (c.class == "manage" || c.class == "write" || c.class == "keys"):
		return 403, "key_read_only"
	}
	status = c.missing
	if there {
		status = c.there
	}
	if status == 404 {
		code = "not_found"
	}
	return status, code
}

// expectObject is expect for the data plane, where a key that is not narrowed may do everything with every object.
func expectObject(h holder, c cell, beyond, there bool) (status int, code string) {
	writes := c.method == "PUT" || c.method == "DELETE"
	switch {
	case writes && h.readOnly && (!h.narrowed || !beyond || strings.HasPrefix(c.path, "/v1/objects")): // of the account: said without a look at the name
		return 403, "key_read_only"
	case h.narrowed && (beyond || !writes && !there):
		return 404, "not_found"
	case h.narrowed && c.method == "PUT": // it is no segment
		return 403, "entry_refused"
	case h.narrowed && c.method == "DELETE":
		return 403, "key_narrowed"
	case there:
		return c.there, ""
	case c.missing == 404:
		return 404, "object_not_found"
	}
	return c.missing, ""
}

func TestEveryRoleRouteAndReachAnswersAsSaid(t *testing.T) {
	w := newWorld(t)
	for _, r := range w.s.Routes() {
		id := r[strings.LastIndexByte(r, ' ')+1:]
		known := others(id)
		for _, c := range cells {
			known = known || c.id == id
		}
		if !known {
			t.Errorf("%s is in no cell", r)
		}
	}
	n := 0
	fresh := func(prefix string) string { n++; return fmt.Sprintf("%s%d", prefix, n) }
	cellsDone := 0
	for _, h := range holders(w) {
		for _, c := range cells {
			named := strings.Contains(c.path+c.body, "NAME")
			for _, beyond := range []bool{false, true} {
				for _, there := range []bool{true, false} {
					if !named && (beyond || !there) {
						continue
					}
					prefix := "run-"
					if beyond {
						prefix = "other-"
					}
					name := fresh(prefix)
					reach := name
					if beyond {
						reach = fresh("run-")
					}
					allowed, _ := expect(h, c, beyond, there)
					if there && named && (allowed < 400 || allowed == 409 || beyond || h.refused) { // where the answer may depend on it
						if strings.Contains(c.path, "/instances/") {
							w.want(201, "POST", "/v1/instances/"+name+"/ensure", w.owner, "")
						} else {
							w.want(201, "POST", "/v1/databases", w.owner, `{"name":"`+name+`"}`)
						}
					}
					body := strings.NewReplacer("NAME", name, "FRESH", fresh("fork-")).Replace(c.body)
					if strings.Contains(body, "DATABASE") {
						database := fresh("free-")
						w.want(201, "POST", "/v1/databases", w.owner, `{"name":"`+database+`"}`)
						body = strings.ReplaceAll(body, "DATABASE", database)
					}
					a := w.do(c.method, strings.ReplaceAll(c.path, "NAME", name), h.secret(w, reach), body, c.headers()...)
					cellsDone++
					status, code := expect(h, c, beyond, there)
					if a.Status != status || code != "" && a.code() != code {
						t.Errorf("%s: %s, beyond its reach %v, there %v: %d %s, want %d %s", h.name, c.id, beyond, there, a.Status, a.Body, status, code)
					}
				}
			}
		}
	}
	t.Logf("%d cells", cellsDone)
}

// What is out of reach answers as what does not exist, byte for byte, and without a look at the store.
func TestOutOfReachIsWhatDoesNotExist(t *testing.T) {
	counter := new(remote.Counter)
	w := newWorld(t, func(o *server.Options) { o.Remote = remote.Counted(o.Remote, counter) })
	w.want(201, "POST", "/v1/instances/other-1/ensure", w.owner, "")
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"other-2"}`)
	sandbox := w.key(`{"name":"s","database_prefixes":["run-"]}`)
	w.want(200, "GET", "/v1/databases", sandbox, "") // the verdict is in the cache now
	plain := func(a answer) string {
		a.Header.Del("Date")
		a.Header.Del("X-Request-Id")
		return fmt.Sprint(a.Status, a.Header, string(a.Body))
	}
	// What a name that it reaches and that does not exist says.
	missing := plain(w.want(404, "GET", "/v1/databases/run-nothing", sandbox, ""))
	for _, c := range cells {
		if !strings.Contains(c.path+c.body, "NAME") {
			continue
		}
		for _, name := range []string{"other-1", "other-2", "other-nothing", "run", "ru", "Run-1", strings.Repeat("x", 200)} {
			before := counter.Counts()
			a := w.do(c.method, strings.ReplaceAll(c.path, "NAME", name), sandbox, strings.NewReplacer("NAME", name, "FRESH", "run-f", "DATABASE", "other-2").Replace(c.body), c.headers()...)
			if got := plain(a); got != missing {
				t.Errorf("%s of %s:\n%s\nwant\n%s", c.id, name, got, missing)
			}
			if after := counter.Counts(); after != before {
				t.Errorf("%s of %s asked the store: %+v, then %+v", c.id, name, before, after)
			}
		}
	}
	// Names that cannot be answer alike, too, from whomever.
	for _, path := range []string{"/v1/databases/..", "/v1/databases/%2e%2e", "/v1/databases/a%2Fb", "/v1/databases/-x", "/v1/databases/a%00b", "/v1/nothing", "/v1/databases/x/nothing", "/v1//databases/x", "/v1/databases/", "/v1/databases/%E2%82%AC", "/"} {
		for _, secret := range []string{sandbox, w.owner} {
			if got := plain(w.do(http.MethodGet, path, secret, "")); got != missing {
				t.Errorf("GET %s:\n%s\nwant\n%s", path, got, missing)
			}
		}
		if a := w.do(http.MethodGet, path, "", ""); a.Status != 401 {
			t.Errorf("GET %s without a key: %d", path, a.Status)
		}
	}
	// A listing shows what is reached and nothing else.
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"run-1"}`)
	for _, q := range []string{"", "?prefix=r", "?prefix=run-1", "?state=active"} {
		if a := w.want(200, "GET", "/v1/databases"+q, sandbox, ""); strings.Count(string(a.Body), `"name"`) != 1 || !strings.Contains(string(a.Body), `"run-1"`) {
			t.Errorf("%s: %s", q, a.Body)
		}
	}
	for _, q := range []string{"?prefix=o", "?prefix=other-2"} {
		if a := w.want(200, "GET", "/v1/databases"+q, sandbox, ""); string(a.Body) != "{\"data\":[]}\n" {
			t.Errorf("%s: %s", q, a.Body)
		}
	}
	// The instance of a key that is reached is out of reach when its database is.
	w.want(200, "PUT", "/v1/instances/run-9/binding", w.owner, `{"database":"other-2"}`)
	if got := plain(w.do("GET", "/v1/instances/run-9", sandbox, "")); got != missing {
		t.Errorf("an instance whose database is out of reach: %s", got)
	}
}

func TestWhoMayDoWhatToWhichKey(t *testing.T) {
	w := newWorld(t)
	type made struct{ id, secret string }
	mk := func(body string, by ...string) made {
		t.Helper()
		secret := w.owner
		if len(by) > 0 {
			secret = by[0]
		}
		a := w.want(201, "POST", "/v1/api-keys", secret, body)
		return made{a.text("id"), a.text("secret")}
	}
	const far = `,"ttl":"30d"`
	actors := map[string]made{
		"owner":     mk(`{"name":"x"}`),
		"admin":     mk(`{"name":"x","user":"alice","role":"admin"}`),
		"member":    mk(`{"name":"x","agent":"bot","role":"member"}`),
		"other":     mk(`{"name":"x","agent":"bot2","role":"member"}`),
		"expiring":  mk(`{"name":"x","agent":"bot","role":"member","ttl":"1d"}`),
		"narrowed":  mk(`{"name":"x","agent":"bot","role":"member","database_prefixes":["run-"]}`),
		"read-only": mk(`{"name":"x","agent":"bot","role":"member","read_only":true}`),
	}
	targets := map[string]string{
		"owner's":         `{"name":"t"}`,
		"admin's":         `{"name":"t","user":"alice","role":"admin"}`,
		"bot's":           `{"name":"t","agent":"bot"}`,
		"bot's, expiring": `{"name":"t","agent":"bot"` + far + `}`,
		"bot's, narrowed": `{"name":"t","agent":"bot","database_prefixes":["run-"]}`,
	}
	rotate := map[string]map[string]int{
		"owner":     {"owner's": 200, "admin's": 200, "bot's": 200, "bot's, expiring": 200, "bot's, narrowed": 200, "none": 404},
		"admin":     {"owner's": 403, "admin's": 200, "bot's": 200, "bot's, expiring": 200, "bot's, narrowed": 200, "none": 404},
		"member":    {"owner's": 404, "admin's": 404, "bot's": 200, "bot's, expiring": 200, "bot's, narrowed": 200, "none": 404},
		"other":     {"owner's": 404, "admin's": 404, "bot's": 404, "bot's, expiring": 404, "bot's, narrowed": 404, "none": 404},
		"expiring":  {"owner's": 404, "admin's": 404, "bot's": 403, "bot's, expiring": 403, "bot's, narrowed": 403, "none": 404},
		"narrowed":  {"owner's": 403, "admin's": 403, "bot's": 403, "bot's, expiring": 403, "bot's, narrowed": 403, "none": 403},
		"read-only": {"owner's": 403, "admin's": 403, "bot's": 403, "bot's, expiring": 403, "bot's, narrowed": 403, "none": 403},
	}
	for actor, row := range rotate {
		for target, status := range row {
			key := made{id: strings.Repeat("0", 20)}
			if body, ok := targets[target]; ok {
				key = mk(body)
			}
			a := w.do("POST", "/v1/api-keys/"+key.id+"/rotate", actors[actor].secret, "")
			if a.Status != status {
				t.Errorf("%s rotates %s: %d %s, want %d", actor, target, a.Status, a.Body, status)
			}
			if (a.Status == 200) != (a.text("secret") != "") || a.Status != 200 && strings.Contains(string(a.Body), "tbo_") {
				t.Errorf("%s rotates %s: %s", actor, target, a.Body)
			}
			// Revoking asks for no more than the role: it tells nothing.
			if status == 200 || actor == "expiring" && status == 403 {
				status = 204
			}
			if a := w.do("DELETE", "/v1/api-keys/"+key.id, actors[actor].secret, ""); a.Status != status {
				t.Errorf("%s revokes %s: %d %s, want %d", actor, target, a.Status, a.Body, status)
			}
		}
	}
	for _, c := range []struct {
		actor, body string
		status      int
		code        string
	}{
		{"owner", `{"name":"x","role":"owner"}`, 201, ""},
		{"owner", `{"name":"x","user":"bob","role":"owner"}`, 201, ""},
		{"owner", `{"name":"x","agent":"bob","role":"owner"}`, 400, "invalid_key"},
		{"owner", `{"name":"x","role":"root"}`, 400, "invalid_key"},
		{"owner", `{"role":"owner"}`, 400, "invalid_key"},
		{"owner", `{"name":"x","databases":[]}`, 400, "invalid_key"},
		{"owner", `{"name":"x","database_prefixes":[]}`, 400, "invalid_key"},
		{"owner", `{"name":"x","database_prefixes":[""]}`, 400, "invalid_key"},
		{"owner", `{"name":"x","databases":["a/b"]}`, 400, "invalid_key"},
		{"owner", `{"name":"x","readonly":true}`, 400, "invalid_request"},
		{"owner", `{"name":"x","expires_at":"2020-01-01T00:00:00Z"}`, 422, "invalid_expires_at"},
		{"owner", `{"name":"x","expires_at":"soon"}`, 422, "invalid_expires_at"},
		{"admin", `{"name":"x","role":"owner"}`, 403, "role"},
		{"admin", `{"name":"x","user":"bob","role":"owner"}`, 403, "role"},
		{"admin", `{"name":"x","agent":"new","role":"admin"}`, 201, ""},
		{"member", `{"name":"x"}`, 201, ""},
		{"member", `{"name":"x","database_prefixes":["run-"]}`, 201, ""},
		{"member", `{"name":"x","agent":"bot"}`, 201, ""}, // itself
		{"member", `{"name":"x","agent":"new"}`, 403, "role"},
		{"member", `{"name":"x","user":"bot"}`, 403, "role"},
		{"member", `{"name":"x","role":"admin"}`, 403, "role"},
		{"expiring", `{"name":"x"}`, 201, ""},
		{"expiring", `{"name":"x","ttl":"1h"}`, 201, ""},
		{"expiring", `{"name":"x","ttl":"2d"}`, 403, "key_wider"},
		{"narrowed", `{"name":"x","database_prefixes":["run-1"]}`, 403, "key_narrowed"},
		{"read-only", `{"name":"x","read_only":true}`, 403, "key_read_only"},
	} {
		a := w.do("POST", "/v1/api-keys", actors[c.actor].secret, c.body)
		if a.Status != c.status || a.code() != c.code {
			t.Errorf("%s makes %s: %d %s, want %d %s", c.actor, c.body, a.Status, a.Body, c.status, c.code)
		}
	}
	// What a member makes for itself acts as it, and expires when it does.
	a := w.want(201, "POST", "/v1/api-keys", actors["expiring"].secret, `{"name":"x"}`)
	if a.text("identity", "id") != "bot" || a.text("identity", "kind") != "agent" || a.text("role") != "member" || a.text("expires_at") == "" {
		t.Errorf("%s", a.Body)
	}
}
