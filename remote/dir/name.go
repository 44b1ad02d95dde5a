package dir

import (
	"path/filepath"
	"strings"
)

const (
	hidden     = ".tonbo"
	maxName    = 200 // bytes of a spelling in one file name; file systems allow 255
	escapeByte = '='
	goesOn     = "~" // at the end of a folder's name: the segment goes on inside; at the beginning of a name: it ends here
	hexDigits  = "0123456789abcdef"
)

// spell returns the spelling of a segment, or of its beginning.
func spell(seg string) string {
	var b strings.Builder
	escapeFirst := seg != "" && (seg[0] == '.' || reserved(seg))
	for i := range len(seg) {
		c := seg[i]
		plain := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '@' || c == '-' || c == '.'
		if i == 0 && escapeFirst || i == len(seg)-1 && c == '.' {
			plain = false
		}
		if plain {
			b.WriteByte(c)
		} else {
			b.WriteByte(escapeByte)
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// reserved tells whether Windows takes the name for a device: what is before the first dot counts.
func reserved(seg string) bool {
	base, _, _ := strings.Cut(seg, ".")
	switch base {
	case "con", "prn", "aux", "nul", "conin$", "conout$":
		return true
	}
	return len(base) == 4 && (base[:3] == "com" || base[:3] == "lpt") && '0' <= base[3] && base[3] <= '9'
}

// unspell is the inverse of spell. It takes nothing but what spell returns, so that no two names mean one segment.
func unspell(name string) (seg string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == escapeByte {
			if i+2 >= len(name) {
				return "", false
			}
			hi, lo := strings.IndexByte(hexDigits, name[i+1]), strings.IndexByte(hexDigits, name[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			c = byte(hi<<4 | lo)
			i += 2
		}
		b.WriteByte(c)
	}
	seg = b.String()
	return seg, seg != "" && spell(seg) == name
}

// path returns the file or folder of a key, without the root: one element per segment, more for long spellings.
func path(key string) string {
	if key == "" {
		return ""
	}
	var elems []string
	for seg := range strings.SplitSeq(key, "/") {
		name := spell(seg)
		for len(name) > maxName {
			elems = append(elems, name[:maxName]+goesOn)
			name = name[maxName:]
			if len(name) <= maxName { // marked, so that no tail is a name that means something else
				name = goesOn + name
				break
			}
		}
		elems = append(elems, name)
	}
	return filepath.Join(elems...)
}
