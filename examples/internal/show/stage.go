package show

import (
	"os"
	"path/filepath"
	"time"

	"github.com/tonbo-go/tonbo"
)

// Stage is where an example takes place.
type Stage struct {
	Dir  string // for all that is on this machine; End removes it
	URL  string // of the remote
	Name string // of the run's database, or what the names of its databases begin with
}

// NewStage makes a temporary directory. A url or name that is "" becomes a remote in that directory, or prefix and the time.
func NewStage(prefix, url, name string) (*Stage, error) {
	dir, err := os.MkdirTemp("", "tonbo-"+prefix+"-")
	if err != nil {
		return nil, err
	}
	if url == "" {
		url = FileURL(filepath.Join(dir, "remote"))
	}
	if name == "" {
		name = prefix + "-" + time.Now().UTC().Format("20060102-150405")
	}
	return &Stage{Dir: dir, URL: url, Name: name}, nil
}

// End removes the directory.
func (s *Stage) End() error { return os.RemoveAll(s.Dir) }

// Machine is the options of a machine: the remote, and a directory of its own.
func (s *Stage) Machine(who string) tonbo.Options {
	return tonbo.Options{URL: s.URL, Dir: filepath.Join(s.Dir, who), Owner: who}
}
