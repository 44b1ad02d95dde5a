package objects

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
	"github.com/tonbo-go/tonbo/internal/objectwire"
	"github.com/tonbo-go/tonbo/remote"
)

// target is what a key of the store belongs to.
type target struct {
	root string // first segment
	name string // database, or instance key; "" for what belongs to none
	kind string // of db/<name>/: "log", "seg", "base" or "pin"
	rest string // behind that, or behind the name
	// child is the fork that a pin belongs to.
	child string
}

func parse(key string) (t target) {
	root, rest, _ := strings.Cut(key, "/")
	t.root = root
	switch root {
	case "db":
		t.name, rest, _ = strings.Cut(rest, "/")
		t.kind, t.rest, _ = strings.Cut(rest, "/")
		if t.kind == "pin" {
			t.child, _, _ = strings.Cut(t.rest, "/")
		}
	case "names", "ended", "instances":
		t.name, t.rest, _ = strings.Cut(rest, "/")
	default:
		t.rest = rest
	}
	return t
}

// scoped tells whether the target is of a kind that narrowed keys may see of the databases that they reach.
func (t target) scoped() bool {
	return (t.root == "db" || t.root == "names" || t.root == "instances") && t.name != ""
}

// sees tells whether a narrowed caller may see that the target exists.
func (c *Caller) sees(t target) bool {
	return t.scoped() && c.Reaches(t.name) && (t.kind != "pin" || c.Reaches(t.child))
}

// mayRead decides about a read of an object. The entity tag, if there is one, is what the object must have.
func (x *exchange) mayRead() (etag string, err error) {
	switch {
	case !x.ours(x.at.root):
		return "", absent() // the server's own, keys above all
	case x.c.Narrowed && x.at.root == "instances" && x.c.sees(x.at):
		return "", x.mayReadBinding()
	case !x.c.Narrowed, x.key == remote.ProbeKey, x.c.sees(x.at):
		return "", nil
	case x.at.root == "db" && x.at.name != "" && x.at.kind != "pin" && x.database != "" && !x.c.Reaches(x.at.name):
		s, err := x.forks.stands(x.r.Context(), x.database, x.key)
		switch {
		case err != nil:
			return "", ofStore(err)
		case s.on:
			return s.etag, nil
		case s.near: // that its source is there, who holds the fork knows; what of it is there, not
			return "", noObject()
		}
	}
	return "", absent()
}

// mayReadBinding decides about an entry in the log of an instance key that the caller reaches: it names databases, which the caller has to reach as well, as where the server itself is asked for the key's database.
func (x *exchange) mayReadBinding() error {
	o, err := x.store.Get(x.r.Context(), x.key, remote.GetOptions{Length: maxBinding})
	switch {
	case errors.Is(err, remote.ErrNotFound):
		return x.missing()
	case err != nil:
		return ofStore(err)
	}
	var b catalog.Binding
	if json.Unmarshal(o.Body, &b) != nil || b.Name != "" && !x.c.Reaches(b.Name) || b.Retire != nil && !x.c.Reaches(b.Retire.Name) {
		return absent()
	}
	return nil
}

// maxBinding is more than an entry of an instance key's log has, in bytes.
const maxBinding = 64 << 10

// missing is the answer when the store says that an object is absent: to a narrowed key, one of a database that never was answers as one that is out of reach.
func (x *exchange) missing() error {
	if !x.c.Narrowed || x.key == remote.ProbeKey || !x.c.Reaches(x.at.name) {
		return noObject()
	}
	return x.nothing(noObject())
}

// nothing is err, if the database that is asked for was ever made, and else the answer for one that does not exist.
func (x *exchange) nothing(err error) error {
	known, kerr := x.tops.known(x.r.Context(), x.at.name)
	switch {
	case kerr != nil:
		return ofStore(kerr)
	case !known:
		return absent()
	}
	return err
}

// mayWrite decides about a create by a key that is narrowed: whether it is of a kind that it may make at all.
func (x *exchange) mayWrite() error {
	t := x.at
	switch {
	case x.key == remote.ProbeKey:
		return nil
	case !t.scoped() || !x.c.Reaches(t.name):
		if t.root == "db" || t.root == "names" || t.root == "instances" {
			return absent()
		}
		return narrowed()
	case t.root != "db":
		return narrowed()
	}
	switch t.kind {
	case "log":
		if _, ok := fence.ParseSlotKey(x.key); ok {
			return nil
		}
	case "seg", "base":
		return nil
	case "pin":
		return narrowed()
	}
	return &Refusal{Status: 403, Code: objectwire.EntryRefused, Detail: "tonbo has no such object"}
}
