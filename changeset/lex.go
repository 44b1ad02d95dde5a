package changeset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// token is one of SQL: a word, a quoted name or string, or a single other character.
type token struct {
	text   string
	quoted bool
}

func (t token) is(words ...string) bool {
	return !t.quoted && slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, t.text) })
}

// tokens reads SQL as SQLite's tokenizer does, as far as it takes to know where a statement ends. It refuses what no schema has and what could be read in another way: NUL, quotes
// that are not closed, and parameters, of which $a(...) goes on to the parenthesis whatever is before it. https://sqlite.org/src/file/src/tokenize.c
func tokens(sql string) ([]token, error) {
	if strings.ContainsRune(sql, 0) {
		return nil, errors.New("its SQL has a NUL")
	}
	word := func(b byte) bool {
		return b == '_' || b == '$' || b >= 0x80 || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
	}
	var out []token
	for i := 0; i < len(sql); {
		begin := i
		switch b := sql[i]; {
		case b == ' ' || b >= '\t' && b <= '\r':
			i++
		case strings.HasPrefix(sql[i:], "\ufeff"): // a space, where a token begins
			i += len("\ufeff")
		case strings.HasPrefix(sql[i:], "--"):
			for ; i < len(sql) && sql[i] != '\n'; i++ {
			}
		case strings.HasPrefix(sql[i:], "/*"):
			end := strings.Index(sql[i+2:], "*/")
			if end < 0 {
				return nil, errors.New("its SQL has a comment that does not end")
			}
			i += end + 4
		case b == '\'' || b == '"' || b == '`' || b == '[':
			end := b
			if b == '[' {
				end = ']'
			}
			for i++; ; i++ {
				if i == len(sql) {
					return nil, fmt.Errorf("its SQL has a %c that is not closed", b)
				}
				if sql[i] != end {
					continue
				}
				if end == ']' || i+1 == len(sql) || sql[i+1] != end {
					break
				}
				i++ // doubled
			}
			i++
			out = append(out, token{sql[begin:i], true})
		case strings.IndexByte("$@#:?", b) >= 0:
			return nil, fmt.Errorf("its SQL has a parameter (%c)", b)
		case word(b):
			for ; i < len(sql) && word(sql[i]); i++ {
			}
			out = append(out, token{sql[begin:i], false})
		default:
			i++
			out = append(out, token{sql[begin:i], false})
		}
	}
	return out, nil
}

// creates makes sure that SQL is one statement that creates the object of this type and name, spelled as the schema table has it: CREATE, the type, the bare name.
// https://sqlite.org/schematab.html#interpretation_of_the_schema_table
func creates(typ, name, sql string) error {
	ts, err := tokens(sql)
	if err != nil {
		return err
	}
	ts = append(ts, token{}, token{}, token{}, token{}, token{}) // so that the beginning can be looked at
	head, follow := []string{"create", typ}, []string(nil)
	switch typ {
	case "table":
		if follow = []string{"("}; ts[1].is("virtual") {
			head, follow = []string{"create", "virtual", "table"}, []string{"using"}
		}
	case "index":
		if follow = []string{"on"}; ts[1].is("unique") {
			head = []string{"create", "unique", "index"}
		}
	case "view":
		follow = []string{"as", "("}
	case "trigger":
		follow = []string{"before", "after", "instead", "delete", "insert", "update"}
	default:
		return fmt.Errorf("type %q: want table, index, view or trigger", typ)
	}
	for i, w := range head {
		if !ts[i].is(w) {
			return fmt.Errorf("its SQL does not begin with %s", strings.ToUpper(strings.Join(head, " ")))
		}
	}
	if ts[len(head)].text == "" || unquote(ts[len(head)].text) != name {
		return fmt.Errorf("its SQL is of %.100q", unquote(ts[len(head)].text))
	}
	if !ts[len(head)+1].is(follow...) {
		return fmt.Errorf("its SQL goes on with %.100q behind the name: want one of %s", ts[len(head)+1].text, strings.ToUpper(strings.Join(follow, ", ")))
	}
	ts = ts[:len(ts)-5]
	end := slices.IndexFunc(ts, func(t token) bool { return t.is(";") })
	if typ == "trigger" { // ends with the first END behind a semicolon, as for sqlite3_complete
		if begin := slices.IndexFunc(ts, func(t token) bool { return t.is("begin") }); begin < 0 || end >= 0 && end < begin {
			return errors.New("its SQL has no BEGIN before a semicolon")
		}
		for end = 1; end < len(ts) && !(ts[end-1].is(";") && ts[end].is("end")); end++ {
		}
		if end++; end > len(ts) {
			return errors.New("its SQL does not end with END")
		}
		if end == len(ts) {
			end = -1
		}
	}
	if end >= 0 {
		return errors.New("its SQL is more than one statement")
	}
	return nil
}
