package markup

import (
	"errors"
	"fmt"
	"html"
	"strings"
	"text/template/parse"
)

// place is where in a page the text of a template ends: what must be done to a value
// printed there.
type place struct {
	state   state
	element string // of the tag, or of the raw text: lower case
	name    string // of the attribute
	url     urlPart
	space   bool // in a tag: an attribute may begin here
}

type state byte

const (
	inText  state = iota // between tags
	inTag                // between attributes, after the element's name
	inValue              // in a double-quoted attribute value
	inRaw                // in a script or style
)

type urlPart byte

const (
	noURL    urlPart = iota
	urlStart         // nothing precedes
	urlPath          // before any "?" or "#"
	urlQuery         // after one
	urlMixed         // path or query, as branches have it: nothing more may be printed
)

// plainAttributes may have values printed in them that are only text to a browser.
var plainAttributes = map[string]bool{
	"aria-label": true, "class": true, "cx": true, "cy": true, "d": true, "data-from": true,
	"data-live": true, "data-now": true, "data-ns": true, "data-until": true, "datetime": true,
	"height": true, "id": true, "max": true, "title": true, "value": true, "viewbox": true,
	"width": true, "x": true, "x1": true, "x2": true, "y": true, "y1": true, "y2": true,
}

// visibleAttributes are those of them that people see or hear.
var visibleAttributes = map[string]bool{"aria-label": true, "title": true}

// urlAttributes name what a browser loads or goes to.
var urlAttributes = map[string]bool{"action": true, "formaction": true, "href": true, "src": true}

// locate finds the place of every printed value of a template.
func (s *Set) locate(tree *parse.Tree) error {
	end, err := s.locateList(tree.Root, place{})
	if err == nil && end != (place{}) {
		err = errors.New("ends within a tag, a script or a style")
	}
	return err
}

func (s *Set) locateList(list *parse.ListNode, p place) (place, error) {
	if list == nil {
		return p, nil
	}
	var err error
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.TextNode:
			p, err = p.after(string(n.Text))
		case *parse.ActionNode:
			if len(n.Pipe.Decl) > 0 {
				continue // prints nothing
			}
			s.places[n] = p
			p, err = p.afterValue()
		case *parse.IfNode:
			p, err = s.locateBranch(&n.BranchNode, p)
		case *parse.WithNode:
			p, err = s.locateBranch(&n.BranchNode, p)
		case *parse.RangeNode:
			p, err = s.locateBranch(&n.BranchNode, p)
			// A second turn begins where the first has ended.
			if err == nil {
				p, err = s.locateBranch(&n.BranchNode, p)
			}
		case *parse.TemplateNode:
			if p != (place{}) {
				err = errors.New("{{template}} in a tag, a script or a style")
			}
		default:
			err = errors.New("not supported here")
		}
		if err != nil {
			return p, fmt.Errorf("%.60s: %w", node, err)
		}
	}
	return p, nil
}

func (s *Set) locateBranch(b *parse.BranchNode, p place) (place, error) {
	one, err := s.locateList(b.List, p)
	if err != nil {
		return p, err
	}
	other, err := s.locateList(b.ElseList, p)
	if err != nil || one == other {
		return one, err
	}
	if one.url != noURL && other.url != noURL {
		one.url, other.url = urlMixed, urlMixed
	}
	one.space, other.space = false, false // only a space that both have counts
	if one != other {
		return p, errors.New("the branches end in different places")
	}
	return one, nil
}

// afterValue is the place after a printed value, or why none may be printed at p.
func (p place) afterValue() (place, error) {
	switch {
	case p.state == inText:
	case p.state != inValue:
		return p, errors.New("a value in a tag outside of quotes, or in a script or style")
	case p.url == urlMixed:
		return p, errors.New("a value after branches that begin a query in one case only")
	case p.url == urlStart:
		p.url = urlPath
	case p.url == noURL && !plainAttributes[p.name]:
		return p, fmt.Errorf("a value in attribute %q", p.name)
	}
	return p, nil
}

// after is the place after text that begins at p.
func (p place) after(text string) (place, error) {
	for text != "" {
		var err error
		switch p.state {
		case inText:
			p, text, err = p.inText(text)
		case inRaw:
			p, text, err = p.inRaw(text)
		case inTag:
			p, text, err = p.inTag(text)
		case inValue:
			p, text = p.inValue(text)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p place) inText(text string) (place, string, error) {
	_, tag, found := strings.Cut(text, "<")
	switch {
	case !found:
		return p, "", nil
	case strings.HasPrefix(tag, "!--"):
		return p, "", errors.New("a comment of HTML; write {{/* */}}")
	}
	end := strings.IndexAny(tag, " \t\r\n>")
	if end < 0 {
		end = len(tag) // the tag goes on after an action
	}
	if end == 0 {
		return p, "", errors.New("a tag without a name")
	}
	element := strings.ToLower(strings.TrimSuffix(tag[:end], "/"))
	return place{state: inTag, element: element}, tag[end:], nil
}

func (p place) inRaw(text string) (place, string, error) {
	_, rest, found := strings.Cut(text, "</"+p.element+">")
	if !found {
		return p, "", errors.New("a script or style that does not end")
	}
	return place{}, rest, nil
}

// inTag reads one attribute, or the end of the tag.
func (p place) inTag(text string) (place, string, error) {
	rest := strings.TrimLeft(text, " \t\r\n")
	p.space = p.space || rest != text
	switch {
	case rest == "":
		return p, "", nil
	case strings.HasPrefix(rest, "/>"):
		return place{}, rest[2:], nil
	case rest[0] == '>' && (p.element == "script" || p.element == "style"):
		return place{state: inRaw, element: p.element}, rest[1:], nil
	case rest[0] == '>':
		return place{}, rest[1:], nil
	case !p.space:
		return p, "", errors.New("attributes that no space separates")
	}
	end := strings.IndexAny(rest, " \t\r\n=>/\"'<")
	if end == 0 {
		return p, "", fmt.Errorf("%.10q is not an attribute", rest)
	}
	if end < 0 { // without a value; the tag goes on after an action
		return place{state: inTag, element: p.element}, "", nil
	}
	name, rest := strings.ToLower(rest[:end]), rest[end:]
	if rest[0] != '=' {
		return place{state: inTag, element: p.element}, rest, nil
	}
	if !strings.HasPrefix(rest, `="`) {
		return p, "", fmt.Errorf("the value of attribute %q is not in double quotes", name)
	}
	p = place{state: inValue, element: p.element, name: name}
	if urlAttributes[name] {
		p.url = urlStart
	}
	return p, rest[2:], nil
}

func (p place) inValue(text string) (place, string) {
	value, rest, ends := strings.Cut(text, `"`)
	switch {
	case ends:
		return place{state: inTag, element: p.element}, rest
	case p.url == noURL || value == "":
	case strings.ContainsAny(value, "?#"):
		p.url = urlQuery
	case p.url == urlStart:
		p.url = urlPath
	}
	return p, ""
}

// visible reports that people see what is printed here.
func (p place) visible() bool { return p.state == inText || visibleAttributes[p.name] }

// escape makes a value harmless where it is printed.
func (p place) escape(value string) string {
	switch p.url {
	case urlStart:
		if !local(value) {
			return "#"
		}
		value = percent(value, true)
	case urlPath:
		value = percent(value, true)
	case urlQuery:
		value = percent(value, false)
	}
	return html.EscapeString(strings.ReplaceAll(value, "\x00", "\uFFFD"))
}

// local reports that a reference stays on this site: browsers read "//" and "/\" as the
// begin of another host's name.
func local(url string) bool {
	switch {
	case url == "" || url[0] == '?' || url[0] == '#':
		return true
	case url[0] != '/':
		return false
	}
	return len(url) == 1 || url[1] != '/' && url[1] != '\\' && url[1] >= ' '
}

// percent encodes what a URL cannot have as it is; whole, also what URLs reserve.
func percent(text string, reserved bool) string {
	var out strings.Builder
	for i := range len(text) {
		c := text[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			strings.IndexByte("-._~", c) >= 0,
			reserved && strings.IndexByte("!#$&*+,/:;=?@[]", c) >= 0,
			reserved && c == '%' && i+2 < len(text) && hex(text[i+1]) && hex(text[i+2]):
			out.WriteByte(c)
		default:
			fmt.Fprintf(&out, "%%%02x", c)
		}
	}
	return out.String()
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
