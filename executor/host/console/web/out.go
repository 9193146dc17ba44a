package web

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
)

// component is what gen makes of every component: it adds a part to a page.
type component func(*out)

// out is a page in the making. Components call its functions, and nothing else, to add to it;
// writing to memory cannot fail.
type out struct{ bytes.Buffer }

// markup adds what a template says itself.
//
//go:noinline
func (o *out) markup(text string) { o.WriteString(text) }

// escaped adds a value, in text or within the quotes of an attribute.
func escaped[T ~string | ~int | ~int64 | ~uint32 | ~uint64](o *out, value T) {
	o.markup(html.EscapeString(fmt.Sprint(value)))
}

// local are the addresses that no browser takes for a script or for another site.
var local = regexp.MustCompile(`^(/([a-z]|$)|[?#])`)

// link adds an address, in an attribute that leads to it: one of this console, or "#".
func (o *out) link(to string) {
	if !local.MatchString(to) {
		to = "#"
	}
	escaped(o, to)
}
