package triggers

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"

	"github.com/sagenbaum/sagenbaum/triggers/nearest"
)

// Error says where and why an expression is refused, and what would be right.
type Error struct {
	Line, Column int // from 1; Column counts characters
	Message      string
	Hint         string // may be empty

	brief string // what to say instead of a Message in the words of cel-go; empty: it is ours
}

// Error reads "cannot compile expression: 1:5: undeclared name \"fatcs\"; did you mean facts?".
func (e *Error) Error() string {
	text := fmt.Sprintf("cannot compile expression: %d:%d: %s", e.Line, e.Column, e.Message)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Brief says what is wrong, and what would be right, in words of this package only: the
// same for a text in every process that has these rules, so that it may become state.
// The words of cel-go, and the places that its parser names, differ between versions.
func (e *Error) Brief() (problem, want string) {
	if e.brief != "" {
		return e.brief, e.Hint
	}
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message), e.Hint
}

func planError(err error) *Error {
	return &Error{Line: 1, Column: 1, Message: err.Error(), brief: briefPlan}
}

// What Brief says in place of cel-go.
const (
	briefParse = "it cannot be parsed"
	briefCheck = "a value is of a kind that does not go where it stands"
	briefPlan  = "no program can be made of it"
)

const undeclared = "undeclared reference to '"

// issueError turns the first issue of cel-go into an Error, which is brief about what
// is not in our words.
func issueError(issues *cel.Issues, d dialect, expression, brief string) *Error {
	all := issues.Errors()
	if len(all) == 0 {
		return planError(issues.Err())
	}
	sort.SliceStable(all, func(i, j int) bool {
		a, b := all[i].Location, all[j].Location
		return a.Line() < b.Line() || a.Line() == b.Line() && a.Column() < b.Column()
	})
	first := all[0]
	if strings.Contains(first.Message, "error recovery attempt limit") && len(all) > 1 {
		first = all[1]
	}
	e := &Error{Line: max(first.Location.Line(), 1), Column: max(first.Location.Column()+1, 1),
		Message: firstLine(first.Message), brief: brief}
	if name, found := strings.CutPrefix(first.Message, undeclared); found {
		name, _, _ = strings.Cut(name, "'")
		if root, _, path := strings.Cut(name, "."); path && nearest.DidYouMean(name, d.names) == "" {
			name = root // cel-go names the path, and places it at one of its dots
			e.Column = columnBefore(expression, e.Line, e.Column, root)
		}
		e.Message, e.brief = fmt.Sprintf("undeclared name %q", name), ""
		if e.Hint = nearest.DidYouMean(name, d.names); e.Hint == "" {
			e.Hint = d.reads
		}
	}
	if name, found := strings.CutPrefix(first.Message, "found no matching overload for '"); found {
		name, _, _ = strings.Cut(name, "'")
		e.Hint = usage(name)
	}
	switch {
	case strings.Contains(first.Message, "token recognition error at: '="):
		e.Message, e.Hint = "a single =", "use =="
		e.brief = e.Message
	}
	if strings.Contains(first.Message, "recursion") || strings.Contains(first.Message, "node count") {
		e.Hint = d.split
	}
	return e
}

// columnBefore returns the column of the last name in a line that is before a
// column, or that one when there is none.
func columnBefore(text string, line, column int, name string) int {
	lines := strings.Split(text, "\n")
	if line > len(lines) {
		return column
	}
	before := []rune(lines[line-1])
	before = before[:min(column, len(before))]
	at := strings.LastIndex(string(before), name)
	if at < 0 {
		return column
	}
	return utf8.RuneCountInString(string(before)[:at]) + 1
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	if len(line) > 200 {
		line = strings.ToValidUTF8(line[:200], "") + "..."
	}
	return line
}

func candidates() []string {
	names := []string{"action", "plan", "verdict", "facts", "has", "size", "duration", "timestamp",
		"matches", "contains", "startsWith", "endsWith", "exists", "all"}
	for _, f := range timeFunctions {
		names = append(names, f.name)
	}
	return names
}

// usage returns the hint for a call with arguments of the wrong kind.
func usage(name string) string {
	if f := timeFunctionOf(name); f != nil {
		return "use " + f.usage
	}
	return "convert one side, as in double(x), string(x) or timestamp(x)"
}
