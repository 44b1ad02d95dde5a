package server

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// TLSFiles returns the configuration of TLS 1.2 and later with a certificate (and its chain) and a key from PEM files. They are read again when they have changed: a renewed certificate needs no restart. While the new ones do not
// fit together, the old ones go on.
func TLSFiles(cert, key string) (*tls.Config, error) {
	f := &tlsFiles{cert: cert, key: key}
	if _, err := f.get(nil); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.get, NextProtos: []string{"h2", "http/1.1"}}, nil
}

type tlsFiles struct {
	cert, key string

	mu      sync.Mutex
	now     *tls.Certificate
	changed [2]time.Time // of the files that now was read from
}

func (f *tlsFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var changed [2]time.Time
	for i, path := range []string{f.cert, f.key} {
		info, err := os.Stat(path)
		if err != nil {
			return f.keep(err)
		}
		changed[i] = info.ModTime()
	}
	if f.now != nil && changed == f.changed {
		return f.now, nil
	}
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return f.keep(err)
	}
	f.now, f.changed = &c, changed
	return f.now, nil
}

// keep goes on with the certificate that there is.
func (f *tlsFiles) keep(err error) (*tls.Certificate, error) {
	if f.now == nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return f.now, nil
}
