package s3server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const module = "github.com/versity/versitygw"

// Build returns the path of the server's binary and builds it first when the user's cache does not have that version. Any
// number of processes may call it at once. Building needs the go command and the module's sources (network, or module cache).
func Build(ctx context.Context) (string, error) {
	tools, err := toolsDir()
	if err != nil {
		return "", err
	}
	version, err := pinnedVersion(filepath.Join(tools, "go.mod"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "tonbo-test")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "versitygw-"+version)
	if runtime.GOOS == "windows" {
		bin += ".exe"
	}
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	unlock, err := lock(bin + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(bin); err == nil { // made by whoever held the lock
		return bin, nil
	}
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "versitygw")
	cmd := exec.CommandContext(ctx, "go", "-C", tools, "build", "-o", out, module+"/cmd/versitygw")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	return bin, os.Rename(out, bin)
}

// toolsDir finds internal/tools/s3 from the working directory upwards: tests run inside the repository.
func toolsDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		tools := filepath.Join(dir, "internal", "tools", "s3")
		if _, err := os.Stat(filepath.Join(tools, "go.mod")); err == nil {
			return tools, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("internal/tools/s3/go.mod is not above the working directory: run inside the repository")
		}
		dir = up
	}
}

func pinnedVersion(gomod string) (string, error) {
	text, err := os.ReadFile(gomod)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == module {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", gomod, module)
}
