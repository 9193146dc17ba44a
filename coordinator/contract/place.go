package contract

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Document is one YAML document and where its fields are in its file.
type Document struct {
	File string
	Line int // where it begins

	text   []string              // the file's lines
	places map[string]*yaml.Node // by field
}

// finding places a message at a field, or at the nearest one above it.
func (d *Document) finding(severity Severity, field, message, hint string) Finding {
	f := Finding{Severity: severity, File: d.File, Line: d.Line, Column: 1, Field: field,
		Message: message, Hint: hint}
	if node := d.node(field); node != nil {
		f.Line, f.Column = node.Line, node.Column
	}
	return f
}

func (d *Document) node(field string) *yaml.Node {
	for field != "" {
		if node := d.places[field]; node != nil {
			return node
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return nil
}

// Finding places an error at a field, or at the nearest one above it. Fields are
// named as in the findings of Parse: steps[2].at.
func (d *Document) Finding(field, message, hint string) Finding {
	return d.finding(Error, field, message, hint)
}

// Warning is Finding for what is allowed, and probably not meant.
func (d *Document) Warning(field, message, hint string) Finding {
	return d.finding(Warning, field, message, hint)
}

// Problem is what is wrong with the text of an expression, and where in it.
type Problem struct {
	Line, Column int // from 1
	Message      string
	Hint         string // what would be right; may be empty
}

// ExpressionFinding places what is wrong with a condition in a field where it is
// wrong within its text.
func (d *Document) ExpressionFinding(field, text string, problem Problem) Finding {
	f := d.finding(Error, field, problem.Message, problem.Hint)
	d.inside(&f, text, problem.Line, problem.Column)
	return f
}

// Has reports whether a field is written in the document, be it null.
func (d *Document) Has(field string) bool { return d.places[field] != nil }

// inside places a problem within the text of an expression. Line and column count
// from 1 in text, which is a suffix of the node's value.
func (d *Document) inside(f *Finding, text string, line, column int) {
	node := d.places[f.Field]
	if node == nil || node.Kind != yaml.ScalarNode || !strings.HasSuffix(node.Value, text) {
		return
	}
	at := len(node.Value) - len(text) // bytes before the place
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < line-1 && i < len(lines); i++ {
		at += len(lines[i])
	}
	rest := node.Value[at:]
	for n := 1; n < column && rest != ""; n++ {
		_, size := utf8.DecodeRuneInString(rest)
		at, rest = at+size, rest[size:]
	}
	w := &walk{lines: d.text, line: node.Line - 1, column: node.Column - 1, style: node.Style}
	if w.to(node.Value[:at]) {
		f.Line, f.Column = w.line+1, w.column+1
	}
}

// walk goes through the source of a scalar beside its value.
type walk struct {
	lines  []string
	line   int // from 0
	column int // from 0, in characters
	indent int // of a literal block
	style  yaml.Style
}

// to moves the walk over the source of value; false when they do not agree.
func (w *walk) to(value string) bool {
	switch {
	case w.style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		w.newline() // after the indicator, at the first line with text
		w.indent = w.column
		value = strings.TrimLeft(value, "\n")
	case w.style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		w.column++
	}
	for value != "" {
		r, size := utf8.DecodeRuneInString(value)
		w.fold()
		source, ok := w.rune()
		switch {
		case !ok && (r == '\n' || r == ' '): // a line break of the source
			if !w.newline() {
				return false
			}
			value = strings.TrimLeft(value[size:], "\n")
			continue
		case !ok:
			return false
		case source == '\\' && w.style&yaml.DoubleQuotedStyle != 0:
			w.column += w.escape()
		case source == '\'' && w.style&yaml.SingleQuotedStyle != 0:
			w.column += 2
		case source != r:
			return false
		default:
			w.column++
		}
		value = value[size:]
	}
	w.fold()
	if _, ok := w.rune(); !ok {
		w.newline()
		w.fold()
	}
	return true
}

// fold skips what is in the source and not in the value: spaces before a line
// break that is folded, and a break that is escaped.
func (w *walk) fold() {
	if w.style&yaml.LiteralStyle != 0 {
		return
	}
	line := w.runes()
	end := w.column
	for end < len(line) && (line[end] == ' ' || line[end] == '\t') {
		end++
	}
	if end == len(line) {
		w.column = end
	}
	if w.style&yaml.DoubleQuotedStyle != 0 && w.column == len(line)-1 && line[w.column] == '\\' {
		w.newline()
	}
}

func (w *walk) runes() []rune {
	if w.line >= len(w.lines) {
		return nil
	}
	return []rune(w.lines[w.line])
}

// rune returns the character of the source at the walk; false at the end of a line.
func (w *walk) rune() (rune, bool) {
	line := w.runes()
	if w.column >= len(line) {
		return 0, false
	}
	return line[w.column], true
}

// newline moves to the first text of the next line that has some.
func (w *walk) newline() bool {
	for w.line++; w.line < len(w.lines); w.line++ {
		line := w.lines[w.line]
		if trimmed := strings.TrimLeft(line, " \t"); trimmed != "" {
			w.column = len(line) - len(trimmed)
			if w.style&yaml.LiteralStyle != 0 && w.indent > 0 {
				w.column = w.indent // what is further right is text
			}
			return true
		}
	}
	return false
}

// escape returns the length of the escape at the walk.
func (w *walk) escape() int {
	line := w.runes()
	if w.column+1 >= len(line) {
		return 1
	}
	switch line[w.column+1] {
	case 'x':
		return 4
	case 'u':
		return 6
	case 'U':
		return 10
	}
	return 2
}
