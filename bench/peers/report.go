package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// row is what was measured of one system in one case of a workload.
type row struct {
	Workload   string     `json:"workload"`
	Case       string     `json:"case"`
	System     string     `json:"system"`
	Rounds     int        `json:"rounds"`
	Values     []value    `json:"values"`
	Conditions conditions `json:"conditions"`
}

// value is a figure. Name holds its unit.
type value struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// target is what a figure should reach.
type target struct {
	Workload string  `json:"workload"`
	What     string  `json:"what"`
	Got      float64 `json:"got"`
	Relation string  `json:"relation"` // "<=" or ">="
	Want     float64 `json:"want"`
	Met      bool    `json:"met"`
}

// report is a whole run.
type report struct {
	Rows    []row    `json:"rows"`
	Targets []target `json:"targets"`
	Failed  []string `json:"failed,omitempty"` // workloads that ended with an error
	Took    []took   `json:"took"`             // by workload, with what it had to prepare
}

// took is how long a workload took.
type took struct {
	Workload string  `json:"workload"`
	Seconds  float64 `json:"seconds"`
}

func (r *report) text(w io.Writer) {
	for i := 0; i < len(r.Rows); {
		j := i
		for j < len(r.Rows) && r.Rows[j].Workload == r.Rows[i].Workload {
			j++
		}
		writeTable(w, r.Rows[i:j])
		i = j
	}
	if len(r.Targets) > 0 {
		fmt.Fprintf(w, "\n## targets\n\n")
		for _, t := range r.Targets {
			mark := "met   "
			if !t.Met {
				mark = "MISSED"
			}
			fmt.Fprintf(w, "%s  %s: %s: %s, want %s %s\n", mark, t.Workload, t.What, number(t.Got), t.Relation, number(t.Want))
		}
	}
	if len(r.Took) > 0 {
		fmt.Fprint(w, "\nseconds:")
		for _, t := range r.Took {
			fmt.Fprintf(w, " %s %.0f", t.Workload, t.Seconds)
		}
		fmt.Fprintln(w)
	}
	for _, f := range r.Failed {
		fmt.Fprintf(w, "\nFAILED: %s\n", f)
	}
}

// writeTable writes the rows of one workload: a column for each figure that any of them has.
func writeTable(w io.Writer, rows []row) {
	columns := []string{"case", "system"}
	for _, r := range rows {
		for _, v := range r.Values {
			if !slices.Contains(columns, v.Name) {
				columns = append(columns, v.Name)
			}
		}
	}
	table := [][]string{append(slices.Clone(columns), "rounds", "load before/after")}
	for _, r := range rows {
		line := []string{r.Case, r.System}
		for _, c := range columns[2:] {
			cell := ""
			for _, v := range r.Values {
				if v.Name == c {
					cell = number(v.Value)
				}
			}
			line = append(line, cell)
		}
		table = append(table, append(line, fmt.Sprint(r.Rounds), fmt.Sprintf("%s/%s", number(r.Conditions.LoadBefore), number(r.Conditions.LoadAfter))))
	}
	widths := make([]int, len(table[0]))
	for _, line := range table {
		for i, cell := range line {
			widths[i] = max(widths[i], len(cell))
		}
	}
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n", rows[0].Workload, rows[0].Conditions)
	for n, line := range table {
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-len(cell))
			if i < 2 {
				cell += pad
			} else {
				cell = pad + cell
			}
			fmt.Fprintf(w, "| %s ", cell)
		}
		fmt.Fprintln(w, "|")
		if n == 0 {
			for _, n := range widths {
				fmt.Fprintf(w, "|%s", strings.Repeat("-", n+2))
			}
			fmt.Fprintln(w, "|")
		}
	}
}

// number has three digits that say something, and no more zeros than it needs.
func number(v float64) string {
	switch {
	case v == float64(int64(v)):
		return fmt.Sprintf("%d", int64(v))
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// write puts the report into a directory: results.txt, results.json, and a plot for each workload.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var b strings.Builder
	r.text(&b)
	if err := os.WriteFile(filepath.Join(dir, "results.txt"), []byte(b.String()), 0o644); err != nil {
		return err
	}
	j, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(j, '\n'), 0o644); err != nil {
		return err
	}
	return r.plots(dir)
}
