package base

// A manifest may come from whoever has a narrowed key of a server, and a list of empty elements takes a hundred times its bytes while it is decoded. What Encode writes is far from that: a label, the least of its elements,
// takes seven bytes for each mark that begins an element or a field.
const (
	markBytes = 6    // bytes of a manifest for each mark, on the whole
	fewMarks  = 1024 // so many are no matter
	maxDepth  = 8    // of a manifest's objects and lists: it has 4
)

// dense tells whether b has more marks ({, [ and comma, outside of texts) than a manifest can have, is deeper, or has a list of something that is no object and no list. It allocates nothing. What it says of what is no JSON
// does not matter.
func dense(b []byte) bool {
	var list [maxDepth]bool
	depth, marks, most := 0, 0, len(b)/markBytes+fewMarks
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '{', '[':
			if depth == maxDepth {
				return true
			}
			list[depth] = c == '['
			depth++
		case '}', ']':
			depth = max(0, depth-1)
			continue
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			continue
		case ',':
		default:
			continue
		}
		if marks++; marks > most {
			return true
		}
		if depth > 0 && list[depth-1] && (i+1 == len(b) || b[i+1] != '{' && b[i+1] != '[' && b[i+1] != ']') {
			return true
		}
	}
	return false
}
