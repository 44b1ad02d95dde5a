package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/examples/internal/child"
	"github.com/tonbo-go/tonbo/examples/internal/show"
)

// steps of a run.
const steps = 12

// event is one line of JSON that a sandbox writes to its standard output.
type event struct {
	Kind string // "opened", "step": acknowledged; of a thief: what it tried
	Step int
	Got  string // by a thief
}

// sandboxMain is a sandbox: a process that finds everything in its environment.
func sandboxMain(what, name string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := child.Context(stdin)
	defer cancel()
	tell := json.NewEncoder(stdout)
	do := work
	if what == "steal" {
		do = steal
	}
	if err := do(ctx, name, tell); err != nil {
		fmt.Fprintln(stderr, err)
		return show.ExitFailed
	}
	return 0
}

// work is what a sandbox is for. There is nothing in it of servers or keys: $TONBO_URL and $TONBO_API_KEY say where the database is.
func work(ctx context.Context, name string, tell *json.Encoder) error {
	db, err := tonbo.Open(ctx, name, tonbo.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS steps(id INTEGER PRIMARY KEY, body TEXT NOT NULL)"); err != nil {
		return err
	}
	var done int
	if err := db.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM steps").Scan(&done); err != nil {
		return err
	}
	if err := tell.Encode(event{Kind: "opened", Step: done}); err != nil {
		return err
	}
	for n := done + 1; n <= steps; n++ {
		if _, err := db.ExecContext(ctx, "INSERT INTO steps VALUES(?, ?)", n, fmt.Sprintf("what step %d found", n)); err != nil {
			return err
		}
		if err := db.Synced(ctx); err != nil { // from here, losing the machine does not lose this step
			return err
		}
		if err := tell.Encode(event{Kind: "step", Step: n}); err != nil {
			return err
		}
	}
	return db.Close()
}

// steal is a program that has come by a sandbox's environment, and tries what it can. It tells what it got.
func steal(ctx context.Context, name string, tell *json.Encoder) error {
	around, err := lookAround()
	if err != nil {
		return err
	}
	network, err := networks()
	if err != nil {
		return err
	}
	c, err := tonbo.NewClient(tonbo.Options{Dir: filepath.Join(os.Getenv("TONBO_DIR"), "thief"), SyncTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	var names []string
	for d, lerr := range c.List(ctx, tonbo.Filter{}) {
		if lerr != nil {
			names = append(names, kind(lerr))
			break
		}
		names = append(names, d.Name)
	}
	_, otherErr := c.Open(ctx, "customers")
	_, createErr := c.Create(ctx, name+"-2", tonbo.CreateOptions{})
	_, forkErr := c.Fork(ctx, "customers", name+"-3", tonbo.ForkOptions{})
	_, rewindErr := c.Rewind(ctx, name, tonbo.Slot(1))
	_, keyErr := c.Keys().Create(ctx, tonbo.KeyOptions{Name: "wider"})
	ro, readErr := tonbo.OpenReadOnly(ctx, name, tonbo.Options{})
	if readErr == nil {
		readErr = ro.Close()
	}
	for _, tried := range []event{
		{Kind: "find something else in its environment and its home", Got: around},
		{Kind: seeNetwork, Got: network},
		{Kind: "list the databases", Got: strings.Join(names, " ")},
		{Kind: "read the run", Got: kind(readErr)},
		{Kind: "open another database", Got: kind(otherErr)},
		{Kind: "create one", Got: kind(createErr)},
		{Kind: "fork another one", Got: kind(forkErr)},
		{Kind: "delete the run", Got: kind(c.Delete(ctx, name))},
		{Kind: "rewind the run", Got: kind(rewindErr)},
		{Kind: "make a key", Got: kind(keyErr)},
	} {
		if err := tell.Encode(tried); err != nil {
			return err
		}
	}
	return nil
}

// lookAround tells what a sandbox has beside what it needs: other variables, files in its home that it did not make itself.
func lookAround() (string, error) {
	var found []string
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); strings.ToUpper(name) {
		case "TONBO_URL", "TONBO_API_KEY", "TONBO_DIR", "HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "SSL_CERT_FILE", "SSL_CERT_DIR":
		default:
			found = append(found, name)
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	files, err := os.ReadDir(home)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if f.Name() != "tmp" && f.Name() != "tonbo" {
			found = append(found, f.Name())
		}
	}
	if len(found) == 0 {
		return "nothing", nil
	}
	return strings.Join(found, " "), nil
}

// seeNetwork is what a thief tries in vain in a network namespace of its own.
const seeNetwork = "see a network"

// networks lists the interfaces that are up.
func networks() (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	var up []string
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 {
			up = append(up, i.Name)
		}
	}
	if len(up) == 0 {
		return "none", nil
	}
	return strings.Join(up, " "), nil
}

// kind is what an error comes to, in a word.
func kind(err error) string {
	for _, k := range []error{tonbo.ErrUnauthorized, tonbo.ErrForbidden, tonbo.ErrNotFound} {
		if errors.Is(err, k) {
			return k.Error()
		}
	}
	if err != nil {
		return err.Error()
	}
	return "done"
}
