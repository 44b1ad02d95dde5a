//go:build !unix

package tonbo

import "os"

func stopProcess(*os.Process) {}
