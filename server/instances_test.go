package server_test

import (
	"fmt"
	"testing"

	"github.com/tonbo-go/tonbo/remote"
)

func TestInstancesAnswerAsSaid(t *testing.T) {
	w := newWorld(t)
	said := func(method, path, body string) string {
		t.Helper()
		a := w.do(method, "/v1/instances/"+path, w.owner, body)
		return fmt.Sprint(a.Status, a.code())
	}
	const key = "customer:1"
	a := w.want(201, "POST", "/v1/instances/"+key+"/ensure", w.owner, `{"metadata":{"a":"b"}}`)
	id := a.text("database_id")
	if a.text("name") != key || a.text("started") != "created" || a.field("generation") != 1.0 {
		t.Errorf("%s", a.Body)
	}
	if a = w.want(200, "POST", "/v1/instances/"+key+"/ensure", w.owner, `{"expect_id":"`+id+`"}`); a.text("started") != "resumed" {
		t.Errorf("%s", a.Body)
	}
	w.want(201, "POST", "/v1/databases", w.owner, `{"name":"free"}`)
	for _, c := range [][4]string{
		{"POST", key + "/ensure", `{"expect_id":"00000000000000000000000000000000"}`, "409target_changed"},
		{"POST", key + "/ensure", `{"adopt":"free"}`, "409key_bound"},
		{"PUT", key + "/binding", `{"database":"free"}`, "409key_bound"},
		{"PUT", "customer:2/binding", `{"database":"` + key + `"}`, "409key_bound"},
		{"PUT", "customer:2/binding", `{"database":"nothing"}`, "404not_found"},
		{"PUT", "customer:2/binding", `{}`, "400invalid_request"},
		{"PUT", "customer:2/binding", `{"database":"free"}`, "200"},
		{"PUT", "customer:2/binding", `{"database":"free"}`, "200"},
		{"POST", "customer:3/ensure", `{"template":"nothing"}`, "404not_found"},
		{"POST", "customer:3/ensure", `{"template":"free","adopt":"free"}`, "400invalid_option"},
		{"POST", "customer:3/ensure", `{"ttl":"1h","expires_at":"2100-01-01T00:00:00Z"}`, "422invalid_expires_at"},
		{"POST", key + "/replace", `{"from":"slot:99"}`, "410point_gone"},
		{"PATCH", key, `{"ttl":"1h"}`, "200"},
		{"DELETE", "customer:3", ``, "404not_found"},
		{"DELETE", "customer:2", ``, "204"},
		{"GET", "customer:2", ``, "404not_found"},
	} {
		if got := said(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%s %s %s: %s, want %s", c[0], c[1], c[2], got, c[3])
		}
	}
	// The key of a database that is replaced and deleted dies with it.
	sandbox := w.key(`{"name":"s","databases":["` + key + `"]}`)
	w.want(200, "GET", "/v1/databases/"+key, sandbox, "")
	a = w.want(201, "POST", "/v1/instances/"+key+"/replace", w.owner, `{"from":"slot:1","delete_old":true}`)
	if a.field("generation") != 2.0 || a.text("database_id") == id {
		t.Errorf("%s", a.Body)
	}
	w.want(401, "GET", "/v1/databases/"+key, sandbox, "")
	if a = w.want(200, "GET", "/v1/instances/"+key, w.owner, ""); a.field("generation") != 2.0 {
		t.Errorf("%s", a.Body)
	}
}

func TestDamagedDatabaseOfAKeyIsRestartingAndNotReplaced(t *testing.T) {
	w := newWorld(t)
	a := w.want(201, "POST", "/v1/instances/x/ensure", w.owner, "")
	infos, _, err := w.store.List(t.Context(), "db/x/log/", remote.ListOptions{Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	o, err := w.store.Get(t.Context(), infos[0].Key, remote.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(nil), o.Body...)
	bad[20] ^= 1
	if _, err := w.store.Swap(t.Context(), o.Key, o.ETag, bad); err != nil {
		t.Fatal(err)
	}
	b := w.do("POST", "/v1/instances/x/ensure", w.owner, "")
	if b.Status != 503 || b.code() != "instance_restarting" || b.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", b.Status, b.Body, b.Header)
	}
	if b := w.do("GET", "/v1/databases/x", w.owner, ""); b.Status != 500 || b.code() != "corrupt" {
		t.Errorf("%d %s", b.Status, b.Body)
	}
	if _, err := w.store.Swap(t.Context(), o.Key, etag(t, w.store, o.Key), o.Body); err != nil {
		t.Fatal(err)
	}
	if b := w.want(200, "POST", "/v1/instances/x/ensure", w.owner, ""); b.text("database_id") != a.text("database_id") {
		t.Errorf("%s", b.Body)
	}
}

func etag(t *testing.T, s remote.Store, key string) string {
	t.Helper()
	o, err := s.Get(t.Context(), key, remote.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o.ETag
}
