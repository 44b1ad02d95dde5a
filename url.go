package tonbo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
	"github.com/tonbo-go/tonbo/remote/gateway"
	"github.com/tonbo-go/tonbo/remote/mem"
	"github.com/tonbo-go/tonbo/remote/s3"
)

// stores keeps one store for each URL and set of store settings in the environment: those with the same key share connections and credentials, and an account's first use is probed once.
var stores struct {
	sync.Mutex
	m map[string]remote.Store
}

// openStore returns the store that o names.
func openStore(ctx context.Context, o Options) (remote.Store, error) {
	if o.Remote != nil {
		return o.Remote, nil
	}
	if o.Token != nil { // no two functions are known to be the same
		return parseURL(ctx, o)
	}
	stores.Lock()
	defer stores.Unlock()
	key := o.URL + "\x00" + o.APIKey
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_PROFILE", "AWS_CA_BUNDLE"} {
		key += "\x00" + os.Getenv(name)
	}
	if s := stores.m[key]; s != nil {
		return s, nil
	}
	s, err := parseURL(ctx, o)
	if err != nil {
		return nil, err
	}
	if stores.m == nil {
		stores.m = map[string]remote.Store{}
	}
	stores.m[key] = s
	return s, nil
}

func parseURL(ctx context.Context, o Options) (remote.Store, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, errors.New("the remote URL does not parse: want s3://bucket/prefix, file:///dir, mem://name, https://host or unix:///socket") // it may hold a secret
	}
	if u.Scheme == "file" || u.Scheme == "mem" {
		switch {
		case u.RawQuery != "" || u.ForceQuery:
			return nil, fmt.Errorf("remote URL %s: %s:// takes no parameters (a ? in a path is spelled %%3F)", o.URL, u.Scheme)
		case u.Fragment != "":
			return nil, fmt.Errorf("remote URL %s: %s:// takes no fragment (a # in a path is spelled %%23)", o.URL, u.Scheme)
		}
	}
	switch u.Scheme {
	case "s3":
		return s3.Open(ctx, o.URL, s3.Options{Logger: o.Logger})
	case "file":
		path := u.Path
		if u.Host != "" && u.Host != "localhost" {
			return nil, fmt.Errorf("remote URL %s: want file:///absolute/directory (three slashes), not a host %q", o.URL, u.Host)
		}
		if u.Opaque != "" {
			path = u.Opaque
		}
		if runtime.GOOS == "windows" {
			path = strings.TrimPrefix(path, "/")
		}
		if strings.Trim(path, "/") == "" {
			return nil, fmt.Errorf("remote URL %s names no directory: want file:///absolute/directory", o.URL)
		}
		return dir.Open(filepath.FromSlash(path))
	case "mem":
		return mem.Named(u.Host + u.Path), nil
	case "http", "https", "unix":
		return gateway.Open(o.URL, gateway.Options{APIKey: o.APIKey, Token: o.Token, Logger: o.Logger})
	}
	return nil, fmt.Errorf("remote URL: scheme %q, host %q: want s3://bucket/prefix, file:///dir, mem://name, https://host or unix:///socket", u.Scheme, u.Hostname()) // not all of it: it may hold a secret
}
