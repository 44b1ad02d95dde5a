package sqltool

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"
)

// LIKE and GLOB of our own: SQLite's take the product of pattern and text in one step, a tenth of a second for half a megabyte and a pattern of a hundred bytes, and nothing interrupts it. Ours ask the call's context.
// https://sqlite.org/lang_expr.html#the_like_glob_regexp_match_and_extract_operators

// token is one element of a pattern.
type token struct {
	kind  tokenKind
	r     rune
	not   bool      // of a set
	spans [][2]rune // of a set
}

type tokenKind int

const (
	literal tokenKind = iota
	one               // _ or ?
	all               // % or *
	oneOf             // [a-z]
)

// pattern is a compiled pattern, which SQLite keeps for the rows of a statement.
type pattern struct {
	tokens []token
	escape rune // that it was compiled with
	fold   bool // a is A, in ASCII
	never  bool // nothing matches: a set without its end
}

// character reads one as SQLite does, also where the text is not UTF-8.
func character(s []byte) (r rune, size int) {
	if len(s) == 0 {
		return utf8.RuneError, 0
	}
	if s[0] < 0xc0 {
		return rune(s[0]), 1
	}
	lead := uint32(s[0])
	switch {
	case lead < 0xe0:
		lead &= 0x1f
	case lead < 0xf0:
		lead &= 0x0f
	case lead < 0xf8:
		lead &= 0x07
	case lead < 0xfc:
		lead &= 0x03
	case lead < 0xfe:
		lead &= 0x01
	default:
		lead = 0
	}
	for size = 1; size < len(s) && s[size]&0xc0 == 0x80; size++ {
		lead = lead<<6 + uint32(s[size]&0x3f)
	}
	if lead < 0x80 || lead&0xfffff800 == 0xd800 || lead&0xfffffffe == 0xfffe {
		return utf8.RuneError, size
	}
	return rune(lead), size
}

// maxPattern is SQLite's own limit. https://sqlite.org/limits.html#max_like_pattern_length
const maxPattern = 50_000

func text(v sqlite3.Value) []byte {
	t := v.RawText()
	if i := bytes.IndexByte(t, 0); i >= 0 { // as SQLite does
		t = t[:i]
	}
	return t
}

// matcher makes the SQL function like(pattern, text, escape) or glob(pattern, text).
func matcher(compile func(p []byte, escape rune) *pattern) func(sqlite3.Context, ...sqlite3.Value) {
	return func(ctx sqlite3.Context, arg ...sqlite3.Value) {
		escape := rune(-1)
		if arg[0].Type() == sqlite3.BLOB || arg[1].Type() == sqlite3.BLOB { // SQLITE_LIKE_DOESNT_MATCH_BLOBS
			ctx.ResultBool(false)
			return
		}
		for _, a := range arg {
			if a.Type() == sqlite3.NULL {
				ctx.ResultNull()
				return
			}
		}
		if len(arg) == 3 {
			e := text(arg[2])
			r, n := character(e)
			if n != len(e) || n == 0 {
				ctx.ResultError(errors.New("ESCAPE expression must be a single character"))
				return
			}
			escape = r
		}
		p, ok := ctx.GetAuxData(0).(*pattern)
		if !ok || p.escape != escape {
			t := text(arg[0])
			if len(t) > maxPattern {
				ctx.ResultError(errors.New("LIKE or GLOB pattern too complex"))
				return
			}
			p = compile(t, escape)
			p.escape = escape
			ctx.SetAuxData(0, p)
		}
		matches, ok := p.match(text(arg[1]), func() bool { return ctx.Conn().GetInterrupt().Err() == nil })
		if !ok {
			ctx.ResultError(sqlite3.INTERRUPT)
			return
		}
		ctx.ResultBool(matches)
	}
}

func compileLike(p []byte, escape rune) *pattern {
	c := &pattern{fold: true}
	for len(p) > 0 {
		r, n := character(p)
		p = p[n:]
		switch {
		case r == escape:
			if len(p) == 0 {
				c.never = true
				return c
			}
			r, n = character(p)
			p = p[n:]
			c.tokens = append(c.tokens, token{r: lower(r)})
		case r == '%':
			c.tokens = append(c.tokens, token{kind: all})
		case r == '_':
			c.tokens = append(c.tokens, token{kind: one})
		default:
			c.tokens = append(c.tokens, token{r: lower(r)})
		}
	}
	return c
}

func compileGlob(p []byte, _ rune) *pattern {
	c := &pattern{}
	for len(p) > 0 {
		r, n := character(p)
		p = p[n:]
		switch r {
		case '*':
			c.tokens = append(c.tokens, token{kind: all})
		case '?':
			c.tokens = append(c.tokens, token{kind: one})
		case '[':
			t, rest, ok := globSet(p)
			if !ok {
				c.never = true
				return c
			}
			c.tokens, p = append(c.tokens, t), rest
		default:
			c.tokens = append(c.tokens, token{r: r})
		}
	}
	return c
}

// globSet reads a set after its [.
func globSet(p []byte) (t token, rest []byte, ok bool) {
	t.kind = oneOf
	next := func() (r rune) {
		r, n := character(p)
		p = p[n:]
		return r
	}
	if len(p) > 0 && p[0] == '^' {
		t.not = true
		p = p[1:]
	}
	for first, prior := true, rune(-1); len(p) > 0; first = false {
		r := next()
		switch {
		case r == ']' && !first:
			return t, p, true
		case r == '-' && prior >= 0 && len(p) > 0 && p[0] != ']':
			t.spans = append(t.spans, [2]rune{prior, next()})
			prior = -1
		default:
			t.spans = append(t.spans, [2]rune{r, r})
			prior = r
		}
	}
	return t, nil, false
}

func lower(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}

func (t *token) accepts(r rune) bool {
	switch t.kind {
	case one:
		return true
	case oneOf:
		in := false
		for _, s := range t.spans {
			in = in || s[0] <= r && r <= s[1]
		}
		return in != t.not
	}
	return t.r == r
}

const matchSteps = 1 << 16 // between two questions whether to go on: a tenth of a millisecond

// match tells whether all of the text matches. Not ok: it was told to stop.
func (p *pattern) match(s []byte, more func() bool) (matches, ok bool) {
	if p.never {
		return false, true
	}
	i, t := 0, 0        // next in s and in p.tokens
	star, from := -1, 0 // the last all, and where it has given up to
	for left := matchSteps; ; left-- {
		if left <= 0 {
			if !more() {
				return false, false
			}
			left = matchSteps
		}
		if t < len(p.tokens) && p.tokens[t].kind == all {
			star, from = t, i
			t++
			if t == len(p.tokens) {
				return true, true
			}
			skipped := p.tokens[t].next(s[from:], p.fold)
			from += skipped
			left -= skipped
			i = from
			continue
		}
		if i == len(s) {
			return t == len(p.tokens), true
		}
		r, n := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, n = character(s[i:])
		}
		if p.fold {
			r = lower(r)
		}
		if t < len(p.tokens) {
			left -= len(p.tokens[t].spans) / 8 // eight of them are one look at the text
		}
		if t < len(p.tokens) && p.tokens[t].accepts(r) {
			i, t = i+n, t+1
			continue
		}
		if star < 0 {
			return false, true
		}
		_, n = character(s[from:])
		skipped := p.tokens[star+1].next(s[from+n:], p.fold)
		from += n + skipped
		left -= skipped
		i, t = from, star+1
	}
}

// next is how many bytes can be skipped to where the token may match. An ASCII character is never a part of another one, in text that is not UTF-8 either.
func (t *token) next(s []byte, fold bool) int {
	if t.kind != literal || t.r >= utf8.RuneSelf {
		return 0
	}
	c := byte(t.r)
	if fold && 'a' <= c && c <= 'z' {
		for i, b := range s {
			if b|0x20 == c {
				return i
			}
		}
		return len(s)
	}
	if i := bytes.IndexByte(s, c); i >= 0 {
		return i
	}
	return len(s)
}
