// Package web is what the console sends to a browser: pages, and the style, script and icon
// that they load.
//
// The pages are templ components (https://templ.guide), one file for each, with the frame
// around them in page.templ and what they share in parts.templ. Type Page has what every page
// has, and each Body the answers that one page shows. `make generate` compiles the .templ files
// to Go, which is checked in.
//
// templ finds the place of every value, and out.go escapes it for that. Links stay on this
// console: methods of Page make them, and one that a browser would take for a script or for
// another site becomes "#". And what people see is visible: characters that hide or reorder a
// text come out as escapes, whichever value had them.
package web

import (
	"bytes"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Page is the frame of every page.
type Page struct {
	Title    string
	Section  string // of the navigation
	Tenant   string // empty: none, as when signing in
	Tenants  []string
	Path     string // of this page, to come back to
	Operator string // who has signed in; empty: no one
	Role     string // of that user on the tenant, or anywhere
	Acts     bool   // that user may act on the tenant
	Admin    bool   // that user may see sessions
	CSRF     string
	Mode     string // of the tenant on this host
	Problem  string
	Pulse    api.Pulse
	Live     string // where the events of this page are; empty: it does not change
	NowNs    int64

	// Provider is the host where the user has signed in; empty: here, with a token.
	Provider string
	// Confirmed: the user has just said who it is once more, and need not again.
	Confirmed bool
	Said      uint64 // sequence of the record that an operator has just written; 0: none
}

// Body is what one page shows.
type Body interface {
	body(p *Page) component
}

// Render returns the page as HTML.
func (p *Page) Render(body Body) []byte {
	var page out
	p.frame(body.body(p))(&page)
	return visible(page.Bytes())
}

// exact finds the values of form fields, which a browser sends back as they are.
var exact = regexp.MustCompile(` value="[^"]*"`)

// visible makes the text of a page visible. Line breaks and tabs stay: outside of code they are
// a space to a browser.
func visible(page []byte) []byte {
	var out bytes.Buffer
	from := 0
	for _, at := range exact.FindAllIndex(page, -1) {
		out.WriteString(printable(string(page[from:at[0]])))
		out.Write(page[at[0]:at[1]])
		from = at[1]
	}
	out.WriteString(printable(string(page[from:])))
	return out.Bytes()
}

// href is the address of a page of the tenant.
func (p *Page) href(parts ...any) string { return href(p.Tenant, parts...) }

// find is the address of a list of the tenant, with one filter set.
func (p *Page) find(list, filter, value string) string {
	return p.href(list) + "?" + url.Values{filter: {value}}.Encode()
}

// fact is the address of a fact of the tenant.
func (p *Page) fact(key string) string {
	return p.href("memory", "fact") + "?" + url.Values{"key": {key}}.Encode()
}

// here is the address of this page with another query, which may begin with "?".
func here(query string) string {
	values, _ := url.ParseQuery(strings.TrimPrefix(query, "?"))
	return "?" + values.Encode()
}

// signIn is the address of the page where one signs in, to come back to this one.
func (p *Page) signIn() string { return "/login?" + url.Values{"next": {p.Path}}.Encode() }

// atProvider is the address that leads to the provider, and then to a page; what may be
// "&confirm=1".
func atProvider(next, what string) string {
	return "/login/provider?" + url.Values{"next": {next}}.Encode() + what
}

// href is the address of a page of a tenant.
func href(tenant string, parts ...any) string {
	to := "/t/" + url.PathEscape(tenant)
	for _, part := range parts {
		to += "/" + url.PathEscape(fmt.Sprint(part))
	}
	return to
}
