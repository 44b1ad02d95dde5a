package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// escapeMax is where an escaped name is cut, in bytes: with what is appended to it, it stays under the 255 of most file systems.
const escapeMax = 180

// escape turns a database's name into one file name that every file system keeps apart from every other database's.
//
// Bytes other than [a-z0-9._-@] become %xx (lower case hex): so names that differ in case only stay apart where the file system
// ignores case, and no separator or reserved character is left. A leading and a trailing dot, the first letter of a Windows device name
// (con, nul, com1, ... also before an extension) and the dot of ".lost-" (files kept aside lie beside the directories) are
// escaped too. What is longer than 180 bytes is cut there and ends in ~ and a hash of the name.
func escape(name string) string {
	device := isDevice(name)
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' || c == '@'
		if c == '.' && (i == 0 || i == len(name)-1 || strings.HasPrefix(name[i:], ".lost-")) || i == 0 && device {
			plain = false
		}
		if plain {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteString(hex.EncodeToString([]byte{c}))
	}
	s := b.String()
	switch {
	case s == "":
		return "%"
	case len(s) > escapeMax:
		sum := sha256.Sum256([]byte(name))
		return s[:escapeMax] + "~" + hex.EncodeToString(sum[:16])
	}
	return s
}

// isDevice tells names that Windows takes for devices, whatever their extension.
func isDevice(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	switch stem {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(stem) == 4 && (strings.HasPrefix(stem, "com") || strings.HasPrefix(stem, "lpt")) && stem[3] >= '0' && stem[3] <= '9'
}
