// Package peer builds and runs programs that tests talk to: a real S3 server, a bad line. Each is pinned by a module of its own below internal/tools, is built once per version and user, and
// ends with the process that started it, whatever ends that.
package peer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Program is a command of a module that is not the library's.
type Program struct {
	Name    string // of its binary
	Tools   string // the directory below internal/tools whose go.mod pins it
	Module  string
	Package string // of the command, in the module: "cmd/x"
}

// Build returns the path of the binary and builds it first when the user's cache does not have that version. Any
// number of processes may call it at once. Building needs the go command and the module's sources (network, or module cache).
func (p Program) Build(ctx context.Context) (string, error) {
	tools, err := p.toolsDir()
	if err != nil {
		return "", err
	}
	version, err := p.pinnedVersion(filepath.Join(tools, "go.mod"))
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
	bin := filepath.Join(dir, p.Name+"-"+version)
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
	out := filepath.Join(tmp, p.Name)
	cmd := exec.CommandContext(ctx, "go", "-C", tools, "build", "-o", out, p.Module+"/"+p.Package)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	return bin, os.Rename(out, bin)
}

// toolsDir finds the directory of tools from the working directory upwards: tests run inside the repository.
func (p Program) toolsDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		tools := filepath.Join(dir, "internal", "tools", p.Tools)
		if _, err := os.Stat(filepath.Join(tools, "go.mod")); err == nil {
			return tools, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("internal/tools/%s/go.mod is not above the working directory: run inside the repository", p.Tools)
		}
		dir = up
	}
}

func (p Program) pinnedVersion(gomod string) (string, error) {
	text, err := os.ReadFile(gomod)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == p.Module {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", gomod, p.Module)
}
