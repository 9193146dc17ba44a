// Package markup fills the templates of the console's pages.
//
// Templates are written in the language of package text/template; markup parses them with
// the standard library's parser and evaluates them by reflection over fields, map elements
// and registered functions. It calls no methods of data, so a program that links it keeps
// only the methods it uses. html/template looks methods up by name, which makes the linker
// keep every exported method of every type.
//
// Escaping has no exception: no value, type or function makes trusted markup. All markup is
// text of a template, and every value that a template prints is escaped for its place:
//
//   - in text and in a quoted attribute, as HTML;
//   - at the start of a URL, it must be a reference within this site (a path, a query or a
//     fragment), or else "#" is printed in its stead; the rest is percent-encoded;
//   - in a URL's path, percent-encoded except for what URLs reserve;
//   - in a URL's query or fragment, percent-encoded whole.
//
// What people see, which is text and the attributes title and aria-label, is made visible
// first, by a function that the caller gives: no value can hide a part of itself.
//
// Parse refuses a template that prints a value in any other place: in a comment, script or
// style, in a tag outside of a double-quoted attribute value, in an attribute that is not
// listed in place.go, or where the branches of an {{if}} lead to different places.
package markup

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/template/parse"
)

// Set is a set of templates that may invoke each other. It is safe for concurrent use.
type Set struct {
	trees  map[string]*parse.Tree
	funcs  map[string]reflect.Value
	places map[*parse.ActionNode]place
	show   Visible
}

// Lines is a text that keeps its line breaks and tabs when it is shown.
type Lines string

// Visible replaces what cannot be seen in a text. lines reports that it may have line
// breaks and tabs.
type Visible func(text string, lines bool) string

// builtins are the functions of text/template that eval.go implements; the values only
// name them to the parser.
var builtins = map[string]any{
	and: true, or: true, "not": true, "eq": true, "ne": true, "lt": true, "gt": true,
	"len": true, "index": true, "printf": true,
}

// Parse reads the templates that texts define. funcs are the functions that templates may
// call, which return one value. show is applied to each value that people see. The error
// says what is wrong and in which template.
func Parse(funcs map[string]any, show Visible, texts ...string) (*Set, error) {
	s := &Set{
		trees:  map[string]*parse.Tree{},
		funcs:  map[string]reflect.Value{},
		places: map[*parse.ActionNode]place{},
		show:   show,
	}
	for name, f := range funcs {
		s.funcs[name] = reflect.ValueOf(f)
		if t := s.funcs[name].Type(); t.Kind() != reflect.Func || t.NumOut() != 1 {
			return nil, fmt.Errorf("markup: %s is not a function with one result", name)
		}
	}
	for _, text := range texts {
		// The text outside of definitions has no name of its own: it must be blank.
		trees, err := parse.Parse("", text, "", "", builtins, funcs)
		if err != nil {
			return nil, fmt.Errorf("markup: %w", err)
		}
		for name, tree := range trees {
			if name == "" && !parse.IsEmptyTree(tree.Root) {
				return nil, fmt.Errorf("markup: text outside of a definition")
			}
			s.trees[name] = tree
		}
	}
	for name, tree := range s.trees {
		if err := s.locate(tree); err != nil {
			return nil, fmt.Errorf("markup: template %s: %w", name, err)
		}
	}
	return s, nil
}

// Execute writes the template called name, filled with data. On an error the output is
// incomplete.
func (s *Set) Execute(w io.Writer, name string, data any) error {
	var out strings.Builder
	if err := s.run(&out, name, reflect.ValueOf(data)); err != nil {
		return fmt.Errorf("markup: template %s: %w", name, err)
	}
	_, err := io.WriteString(w, out.String())
	return err
}
