package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Table prints aligned columns, two spaces apart. The last column is not padded. On a
// terminal that is too narrow it leaves out columns that say nothing and spare ones,
// and shortens those that may be; a pipe gets everything.
type Table struct {
	Head []string
	Rows [][]string
	// paint colours a cell after it was padded; nil leaves all plain.
	Paint func(column int, cell string) string
	// below are lines under a row, from column under on.
	below map[int][]string
	under int
	// elastic are the columns that may be shortened, by their heads: texts, never what
	// a command takes.
	Elastic []string
	// spare are the columns that may be left out before those are cut to little, by
	// their heads, the first first.
	Spare []string
}

// elasticMin is the width that an elastic column keeps, elasticFair the one below
// which spare columns are left out instead.
const (
	elasticMin  = 8
	elasticFair = 16
)

// Add takes one row; its cells become printable here.
func (t *Table) Add(cells ...string) {
	for i := range cells {
		cells[i] = Printable(cells[i])
	}
	t.Rows = append(t.Rows, cells)
}

// Note adds lines below the row that was added last, from a column on.
func (t *Table) Note(column int, notes ...string) {
	if t.below == nil {
		t.below = map[int][]string{}
	}
	t.under = column
	for _, text := range notes {
		t.below[len(t.Rows)] = append(t.below[len(t.Rows)], Printable(text))
	}
}

// Write prints the table, as wide as the terminal allows.
func (t *Table) Write(w io.Writer) {
	widths, left := t.fit(ColumnsOf(w))
	indent := 0
	for i, columns := range widths[:t.under] {
		if !left[i] {
			indent += columns + 2
		}
	}
	for n, row := range append([][]string{t.Head}, t.Rows...) {
		var line strings.Builder
		for i, cell := range row {
			if left[i] {
				continue
			}
			cell = Shorten(cell, widths[i])
			pad := strings.Repeat(" ", widths[i]-cells(cell)+2)
			if t.Paint != nil && n > 0 {
				cell = t.Paint(i, cell)
			}
			line.WriteString(cell + pad)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
		for _, text := range t.below[n] {
			fmt.Fprintln(w, strings.Repeat(" ", indent)+text)
		}
	}
}

// fit gives each column its width, and says which are left out for want of room; 0 is
// room without end.
func (t *Table) fit(room int) (widths []int, left []bool) {
	widths, left = make([]int, len(t.Head)), make([]bool, len(t.Head))
	idle := make([]bool, len(t.Head)) // a column that says nothing
	for i := range idle {
		idle[i] = len(t.Rows) > 0
	}
	for n, row := range append([][]string{t.Head}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], cells(cell))
			idle[i] = idle[i] && (n == 0 || cell == "-" || cell == "")
		}
	}
	over := -room - 2
	for _, columns := range widths {
		over += columns + 2
	}
	if room == 0 {
		return widths, left
	}
	for i := len(widths) - 1; i >= 0 && over > 0; i-- {
		if idle[i] {
			left[i] = true
			over -= widths[i] + 2
		}
	}
	for _, head := range t.Spare {
		if over <= t.slack(widths, left) {
			break
		}
		if i := slices.Index(t.Head, head); !left[i] {
			left[i] = true
			over -= widths[i] + 2
		}
	}
	for over > 0 {
		widest := -1
		for i, head := range t.Head {
			if !left[i] && widths[i] > elasticMin && slices.Contains(t.Elastic, head) &&
				(widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break // what a command takes is never cut: the terminal breaks the line
		}
		widths[widest]--
		over--
	}
	return widths, left
}

// slack is how much elastic columns give before they are cut to little.
func (t *Table) slack(widths []int, left []bool) (n int) {
	for i, head := range t.Head {
		if !left[i] && slices.Contains(t.Elastic, head) {
			n += max(widths[i]-elasticFair, 0)
		}
	}
	return n
}

// Shorten cuts a text to a number of columns.
func Shorten(text string, columns int) string {
	if cells(text) <= columns {
		return text
	}
	used := 0
	for at, r := range text {
		if used += cellsOf(r); used > columns-1 {
			return text[:at] + "…"
		}
	}
	return text
}

// cells is how many columns of a terminal a text takes.
func cells(text string) (n int) {
	for _, r := range text {
		n += cellsOf(r)
	}
	return n
}

func cellsOf(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.Is(unicode.Mn, r), unicode.Is(unicode.Me, r):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// ColumnsOf is how wide a terminal is; 0 for what is none, or tells nothing. COLUMNS
// speaks first, as for other tools.
func ColumnsOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if r, live := w.(*redraw); live {
		f, ok = r.to.(*os.File)
	}
	if !ok || !IsTerminal(f) {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return terminalColumns(f)
}
