//go:build !linux

package s3server

// tryXattr leaves the answer to the server.
func tryXattr(string) error { return nil }
