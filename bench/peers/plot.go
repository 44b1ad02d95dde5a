package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// plots writes an SVG for each workload: a bar for each row, of its first figure, on a logarithmic scale.
func (r *report) plots(dir string) error {
	for i := 0; i < len(r.Rows); {
		j := i
		for j < len(r.Rows) && r.Rows[j].Workload == r.Rows[i].Workload {
			j++
		}
		if err := os.WriteFile(filepath.Join(dir, r.Rows[i].Workload+".svg"), []byte(plot(r.Rows[i:j])), 0o644); err != nil {
			return err
		}
		i = j
	}
	return nil
}

func plot(rows []row) string {
	const (
		labels, bars, figures = 330, 420, 90
		height, top           = 20, 44
	)
	name := rows[0].Values[0].Name
	low, high := math.Inf(1), math.Inf(-1)
	for _, r := range rows {
		if v := r.Values[0].Value; r.Values[0].Name == name && v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	low /= 2 // so that the shortest bar is one
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", labels+bars+figures, top+height*len(rows)+10)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="8" y="18" font-size="14">%s: %s, logarithmic</text><text x="8" y="34" fill="#666">%s</text>`+"\n",
		html.EscapeString(rows[0].Workload), html.EscapeString(name), html.EscapeString(rows[0].Conditions.String()))
	for i, r := range rows {
		if r.Values[0].Name != name {
			continue
		}
		v, y := r.Values[0].Value, top+height*i
		width := 0.0
		if v > 0 && high > low {
			width = bars * math.Log(v/low) / math.Log(high/low)
		}
		color := "#999999"
		if strings.HasPrefix(r.System, "tonbo") {
			color = "#2563eb"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d">%s</text>`+"\n",
			labels-6, y+14, html.EscapeString(r.Case+": "+r.System), labels, y+2, width, height-5, color, labels+width+5, y+14, number(v))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
