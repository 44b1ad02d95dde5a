package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tonbo-go/tonbo/server"
)

// serveFlags are those of tonbo serve.
type serveFlags struct {
	listen, mode      string
	cert, key         string
	insecure          bool
	init              bool
	ownerKey          string
	timeout, keyCache time.Duration
	drain             time.Duration
	concurrency       int
	maxDatabases      int
	metricsKey        bool
	keyRate           float64
	maxMemory         int64 // MiB
}

func (a *app) serve() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the account over HTTP, to programs that hold a key instead of credentials",
		Long: `Serve the account over HTTP: the control plane, and the databases themselves for programs that hold a key and no credentials of the bucket. All state is in the remote: any number of servers on one remote, behind a load balancer, behave as one.

It listens on loopback unless told otherwise. Beyond that it wants TLS, or --insecure where something in front of it ends TLS.

The first key is made by --init and shown once, or kept in a file by --owner-key. With both, the file is made if it is not there. Where the account has an owner key already, --init does nothing. docs/server.md tells the rest.`,
		Example: `  tonbo serve --init
  tonbo serve --init --owner-key /etc/tonbo/owner.key --listen 0.0.0.0:8443 --tls-cert tls.crt --tls-key tls.key
  tonbo serve --listen unix:///run/tonbo.sock --socket-mode 0666`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runServe(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8080", "host:port, or unix:///path; port 0 takes one that is free")
	fs.StringVar(&f.mode, "socket-mode", "0600", "mode of a unix socket")
	fs.StringVar(&f.cert, "tls-cert", "", "PEM file of the certificate and its chain; read again when it changes")
	fs.StringVar(&f.key, "tls-key", "", "PEM file of its key")
	fs.BoolVar(&f.insecure, "insecure", false, "listen beyond loopback without TLS: keys can be read on the way, unless something in front ends TLS")
	fs.BoolVar(&f.init, "init", false, "make the account's first owner key if it has none, and show it once")
	fs.StringVar(&f.ownerKey, "owner-key", "", "file with the account's owner key; with --init it is made if it is not there")
	fs.DurationVar(&f.timeout, "timeout", 0, "for a request, and for each read and write of those that stream (default 1m)")
	fs.DurationVar(&f.keyCache, "key-cache", 0, "how long a revoked key may still be taken by this server when another one revoked it: up to 5s (default 3s)")
	fs.DurationVar(&f.drain, "drain", 0, "how long requests under way may take when the server is told to end (default 30s)")
	fs.IntVar(&f.concurrency, "concurrency", 0, "queries, exports and checkpoints at once (default 8)")
	fs.IntVar(&f.maxDatabases, "max-databases", 0, "how many databases the account may hold (default 10,000, looked at now and then; a number is kept strictly)")
	fs.Float64Var(&f.keyRate, "key-rate", 0, "requests a second of one key on the data plane (default 5,000; below 0: any number)")
	fs.Int64Var(&f.maxMemory, "max-memory", 0, "MiB of objects in memory at once, half of it for one key (default 256)")
	fs.BoolVar(&f.metricsKey, "metrics-key", false, "/metrics needs a key that is not narrowed")
	return cmd
}

func (a *app) runServe(ctx context.Context, f serveFlags) error {
	a.makes = true
	o, err := a.options()
	if err != nil {
		return err
	}
	switch scheme, _, _ := strings.Cut(o.URL, ":"); {
	case scheme == "http", scheme == "https", scheme == "unix":
		return usagef("--url %s is a server: serve a bucket or a directory", o.URL)
	case (f.cert == "") != (f.key == ""):
		return usagef("--tls-cert and --tls-key go together")
	}
	mode, err := strconv.ParseUint(f.mode, 8, 9)
	if err != nil {
		return usagef("--socket-mode %q: want an octal mode such as 0660", f.mode)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(a.progress.above(), nil))
	}
	o.Progress, o.MaxDatabases = nil, f.maxDatabases
	s, err := server.New(server.Options{Options: o, Timeout: f.timeout, KeyCache: f.keyCache, Concurrency: f.concurrency, MetricsKey: f.metricsKey, KeyRate: f.keyRate, MaxMemory: f.maxMemory << 20})
	if err != nil {
		return &usageError{err: err}
	}
	defer s.Close()
	var so server.ServeOptions
	so.Drain = f.drain
	if f.cert != "" {
		if so.TLS, err = server.TLSFiles(f.cert, f.key); err != nil {
			return err
		}
	}
	l, err := server.Listen(f.listen, fs.FileMode(mode))
	if err != nil {
		return err
	}
	defer l.Close()
	if so.TLS == nil && !f.insecure && !server.Loopback(l) {
		return usagef("%s can be reached from other machines: give --tls-cert and --tls-key, or --insecure where something in front of it ends TLS", l.Addr())
	}
	secret, err := a.ownerKey(ctx, s, f)
	if err != nil {
		return err
	}
	v := struct {
		URL      string `json:"url"`
		OwnerKey string `json:"owner_key,omitempty"`
	}{serverURL(l, so.TLS != nil), secret}
	err = a.answer(v, func(w io.Writer) {
		if secret != "" {
			fmt.Fprintf(w, "owner key %s\nThis is the only time that it is shown.\n", secret)
		}
		fmt.Fprintf(w, "listening on %s\n", v.URL)
	})
	if err != nil {
		return err
	}
	return s.Serve(ctx, l, so)
}

// ownerKey sees to the account's first key, as the flags say. It returns the secret of one that was made and is in no file.
func (a *app) ownerKey(ctx context.Context, s *server.Server, f serveFlags) (secret string, err error) {
	switch {
	case f.ownerKey != "":
		return "", s.OwnerFile(ctx, f.ownerKey, f.init)
	case !f.init:
		return "", nil
	}
	secret, err = s.MakeOwner(ctx)
	if errors.Is(err, server.ErrHasOwner) {
		fmt.Fprintf(a.progress.above(), "tonbo: %v: no key was made\n", err)
		return "", nil
	}
	return secret, err
}

// serverURL is what clients on this machine say to reach the listener.
func serverURL(l net.Listener, tls bool) string {
	switch {
	case l.Addr().Network() == "unix":
		return "unix://" + l.Addr().String()
	case tls:
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}
