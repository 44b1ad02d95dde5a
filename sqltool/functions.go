package sqltool

import (
	"bytes"
	"errors"
	"slices"

	"github.com/ncruces/go-sqlite3"
)

// replaceFunctions gives the connection functions of its own for those of SQLite that take the product of their arguments' lengths, in one step that nothing interrupts: replace(x, y, z) with half a megabyte of nearly equal text in
// x and y runs for seconds, unhex(x, y) for minutes. Ours give the same results in linear time. https://sqlite.org/lang_corefunc.html
func replaceFunctions(c *sqlite3.Conn, most int) error {
	const pure = sqlite3.DETERMINISTIC | sqlite3.INNOCUOUS
	return errors.Join(
		c.CreateFunction("like", 2, pure, matcher(compileLike)),
		c.CreateFunction("like", 3, pure, matcher(compileLike)),
		c.CreateFunction("glob", 2, pure, matcher(compileGlob)),
		c.CreateFunction("instr", 2, pure, instr),
		c.CreateFunction("replace", 3, pure, func(ctx sqlite3.Context, arg ...sqlite3.Value) { replace(ctx, most, arg...) }),
		c.CreateFunction("trim", 2, pure, func(ctx sqlite3.Context, arg ...sqlite3.Value) { trim(ctx, true, true, arg...) }),
		c.CreateFunction("ltrim", 2, pure, func(ctx sqlite3.Context, arg ...sqlite3.Value) { trim(ctx, true, false, arg...) }),
		c.CreateFunction("rtrim", 2, pure, func(ctx sqlite3.Context, arg ...sqlite3.Value) { trim(ctx, false, true, arg...) }),
		c.CreateFunction("unhex", 2, pure, func(ctx sqlite3.Context, _ ...sqlite3.Value) {
			ctx.ResultError(errors.New("unhex with two arguments is not available: use replace and unhex with one"))
		}),
	)
}

func instr(ctx sqlite3.Context, arg ...sqlite3.Value) {
	x, y := arg[0], arg[1]
	switch {
	case x.Type() == sqlite3.NULL || y.Type() == sqlite3.NULL:
		ctx.ResultNull()
		return
	case x.Type() == sqlite3.BLOB && y.Type() == sqlite3.BLOB:
		ctx.ResultInt64(int64(bytes.Index(x.RawBlob(), y.RawBlob()) + 1))
		return
	}
	text, part := x.RawText(), y.RawText()
	i := bytes.Index(text, part)
	if i > 0 && part[0]&0xc0 == 0x80 { // within a character: SQLite looks where one begins
		i = -1
	}
	n := int64(0)
	if i >= 0 {
		n = 1 + characters(text, i)
	}
	ctx.ResultInt64(n)
}

// characters counts those that begin in text[1:i+1].
func characters(text []byte, i int) (n int64) {
	for j := 1; j <= i; j++ {
		if j == len(text) || text[j]&0xc0 != 0x80 {
			n++
		}
	}
	return n
}

func replace(ctx sqlite3.Context, most int, arg ...sqlite3.Value) {
	x, y, z := arg[0], arg[1], arg[2]
	if x.Type() == sqlite3.NULL || y.Type() == sqlite3.NULL {
		ctx.ResultNull()
		return
	}
	text, old := x.RawText(), y.RawText()
	if len(old) == 0 || old[0] == 0 {
		ctx.ResultText(string(text))
		return
	}
	if z.Type() == sqlite3.NULL {
		ctx.ResultNull()
		return
	}
	with := z.RawText()
	if n := int64(bytes.Count(text, old)); int64(len(text))+n*int64(len(with)-len(old)) > int64(most) {
		ctx.ResultError(sqlite3.TOOBIG)
		return
	}
	ctx.ResultText(string(bytes.ReplaceAll(text, old, with)))
}

func trim(ctx sqlite3.Context, left, right bool, arg ...sqlite3.Value) {
	if arg[0].Type() == sqlite3.NULL || arg[1].Type() == sqlite3.NULL {
		ctx.ResultNull()
		return
	}
	first, lengths := split(text(arg[1]))
	if len(lengths) > 8 {
		ctx.ResultError(errors.New("trim: the characters to remove are not UTF-8"))
		return
	}
	text := arg[0].RawText()
	for left && len(text) > 0 {
		n := match(first, lengths, func(n int) []byte { return text[:min(n, len(text))] })
		if n == 0 {
			break
		}
		text = text[n:]
	}
	for right && len(text) > 0 {
		n := match(first, lengths, func(n int) []byte { return text[len(text)-min(n, len(text)):] })
		if n == 0 {
			break
		}
		text = text[:len(text)-n]
	}
	ctx.ResultText(string(text))
}

// split cuts a text into characters as SQLite does, which are longer than four bytes when it is not UTF-8: the place of each, and the lengths that there are.
func split(text []byte) (first map[string]int, lengths []int) {
	first = map[string]int{}
	for n := 0; len(text) > 0; n++ {
		size := 1
		if text[0] >= 0xc0 {
			for size < len(text) && text[size]&0xc0 == 0x80 {
				size++
			}
		}
		c := string(text[:size])
		if _, ok := first[c]; !ok {
			first[c] = n
			if !slices.Contains(lengths, size) {
				lengths = append(lengths, size)
			}
		}
		if len(lengths) > 8 {
			break
		}
		text = text[size:]
	}
	return first, lengths
}

// match is the length of the first character that stands there, 0 for none.
func match(first map[string]int, lengths []int, at func(n int) []byte) (size int) {
	best := -1
	for _, n := range lengths {
		c := at(n)
		if len(c) < n {
			continue
		}
		if i, ok := first[string(c)]; ok && (best < 0 || i < best) {
			best, size = i, n
		}
	}
	return size
}
