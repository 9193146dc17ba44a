package contract

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a finding forbids the use of a contract.
type Severity string

// The severities of a Finding.
const (
	Error   Severity = "error"   // refused
	Warning Severity = "warning" // allowed, and probably not meant
)

// Finding is one thing that is wrong with a file of contracts.
type Finding struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Line     int      `json:"line"`   // from 1; 0: the file as a whole
	Column   int      `json:"column"` // from 1, in characters
	Field    string   `json:"field,omitempty"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
}

// String reads as a compiler's: "git.yaml:12:9: error: inverse.call: ...; want ...".
func (f Finding) String() string {
	text := f.File
	if f.Line > 0 {
		text += fmt.Sprintf(":%d:%d", f.Line, f.Column)
	}
	text += ": " + string(f.Severity) + ": "
	if f.Field != "" {
		text += f.Field + ": "
	}
	text += f.Message
	if f.Hint != "" {
		text += "; " + f.Hint
	}
	return text
}

// Findings is the error of Parse and LoadDir: everything that they found, in the
// order of the files.
type Findings []Finding

// Error lists the findings, one a line.
func (f Findings) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return "cannot read contracts: " + strings.Join(lines, "\n")
}

// Errors counts the findings that forbid a contract.
func (f Findings) Errors() int {
	n := 0
	for i := range f {
		if f[i].Severity == Error {
			n++
		}
	}
	return n
}

// Sort puts findings in the order of their places.
func (f Findings) Sort() {
	slices.SortStableFunc(f, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column)
	})
}

// err returns the findings as an error, or nil when there are none.
func (f Findings) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}
