//go:build unix && !linux && !darwin

package dir

import "fmt"

func renameExclusive(_, file string) error { return fmt.Errorf("%s: %w", file, errNoExclusive) }
