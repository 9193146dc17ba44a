package web

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// bodies are one of each page.
var bodies = []Body{
	Overview{}, Plans{}, Plan{}, Preview{}, Quarantine{}, Obligation{}, Reviews{}, Review{}, Leases{}, Memory{}, Fact{},
	Ledger{}, Commit{}, Capabilities{}, Health{}, Tenants{}, SignIn{}, Failure{},
	Sessions{},
}

// injected are texts that would run, close, hide or lead somewhere if a page let them.
var injected = []string{
	`"><script>window.pwned=1</script>`, `' onmouseover='x`, "<!--", "</title></style></textarea>",
	"javascript:alert(1)", "//evil.example/x", "a?b#c&d=%41 +é\u202e\a", "{{.}}", `\`, "`", "{ x }", "a\x00b",
	` style="color:red" onclick="x`, "</pre></svg><img src=x onerror=x>", "data:text/html,x", "",
}

// states are all that have a picture.
var states = slices.Sorted(maps.Keys(marks))

// TestNoValueIsMarkup fills every page with hostile values of all its fields. It must have the
// elements and attributes that it has with harmless ones, and lead and load from nowhere else.
func TestNoValueIsMarkup(t *testing.T) {
	t.Parallel()
	for _, empty := range bodies {
		t.Run(reflect.TypeOf(empty).Name(), func(t *testing.T) {
			t.Parallel()
			printed := map[string]bool{}
			for seed := range uint64(200) {
				got, want := read(t, filled(empty, seed, true)), read(t, filled(empty, seed, false))
				if !slices.Equal(got.shape, want.shape) {
					t.Fatalf("seed %d: hostile values change the page:\n%q, want\n%q", seed, got.shape, want.shape)
				}
				for _, link := range got.links {
					if !stays(link) {
						t.Errorf("seed %d: a link leads to %q", seed, link)
					}
				}
				for _, text := range got.texts {
					if strings.ContainsAny(text, "\u202e\a\x00") {
						t.Errorf("seed %d: what cannot be seen is shown as it is: %q", seed, text)
					}
					for _, hostile := range injected {
						printed[hostile] = printed[hostile] || strings.Contains(text, printable(hostile))
					}
				}
			}
			for _, hostile := range injected {
				if !printed[hostile] {
					t.Errorf("%q was never shown: the test has lost its teeth", hostile)
				}
			}
		})
	}
}

// filled is a page with values by seed, hostile ones or harmless ones in the same places.
func filled(empty Body, seed uint64, hostile bool) string {
	f := &filler{Rand: rand.New(rand.NewPCG(seed, 1)), hostile: hostile}
	page, body := &Page{}, reflect.New(reflect.TypeOf(empty)).Elem()
	f.fill(reflect.ValueOf(page).Elem(), 0)
	f.fill(body, 0)
	return string(page.Render(body.Interface().(Body)))
}

// parts are what a browser makes of a page.
type parts struct {
	shape []string // its elements with the names of their attributes
	links []string // what it loads or leads to
	texts []string // what people see
}

func read(t *testing.T, page string) (p parts) {
	t.Helper()
	for z := html.NewTokenizer(strings.NewReader(page)); ; {
		kind, token := z.Next(), z.Token()
		switch kind {
		case html.ErrorToken:
			if z.Err() != io.EOF {
				t.Fatal(z.Err())
			}
			return p
		case html.TextToken:
			p.texts = append(p.texts, token.Data)
			continue
		case html.CommentToken:
			t.Errorf("a page has a comment: %q", token.Data)
		}
		shape := kind.String() + " " + token.Data
		for _, a := range token.Attr {
			shape += " " + a.Key
			switch a.Key {
			case "href", "src", "action", "formaction", "data-live":
				p.links = append(p.links, a.Val)
			case "title", "aria-label":
				p.texts = append(p.texts, a.Val)
			case "style", "srcdoc", "srcset":
				t.Errorf("a page has an attribute %s, which the policy of the console forbids", a.Key)
			}
			if strings.HasPrefix(a.Key, "on") {
				t.Errorf("a page has a script in attribute %s", a.Key)
			}
		}
		p.shape = append(p.shape, shape)
	}
}

// stays reports that a link stays on the console, or leads nowhere.
func stays(link string) bool {
	u, err := url.Parse(link)
	return err == nil && u.Scheme == "" && u.Host == "" &&
		!strings.ContainsAny(link, "\\\x00\a\n\t ") && !strings.HasPrefix(link, "//")
}

// filler fills values at random: the same for a seed, but for hostile.
type filler struct {
	*rand.Rand
	hostile bool
}

func (f *filler) text() string {
	i, state := f.IntN(len(injected)), states[f.IntN(len(states))]
	switch {
	case f.IntN(2) == 0:
		return state
	case f.hostile || injected[i] == "":
		return injected[i]
	}
	return fmt.Sprintf("harmless %d", i)
}

// fill sets every field that can be reached.
func (f *filler) fill(v reflect.Value, depth int) {
	switch {
	case !v.CanSet():
		return
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(f.text()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(f.Float64() * 200)
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), depth+1)
			if name := v.Type().Field(i).Name; name == "Live" { // made by the console, whole
				v.Field(i).SetString("/t/a/events?" + url.Values{"plan": {v.Field(i).String()}}.Encode())
			}
		}
	case reflect.Pointer:
		if depth < 6 && f.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		if depth < 8 {
			v.Set(reflect.MakeSlice(v.Type(), f.IntN(3), 2))
			for i := range v.Len() {
				f.fill(v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.IntN(2) { // of two, the order would depend on the values
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, depth+1)
			f.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	default:
		switch {
		case v.CanInt():
			v.SetInt(f.Int64N(3) * f.Int64N(100))
		case v.CanUint():
			v.SetUint(f.Uint64N(3) * f.Uint64N(100))
		}
	}
}

// TestAValueIsEscapedForItsPlace shows what comes out, place by place.
func TestAValueIsEscapedForItsPlace(t *testing.T) {
	t.Parallel()
	const hostile = `"><script>'&`
	const quoted = `&#34;&gt;&lt;script&gt;&#39;&amp;`
	p := &Page{Tenant: "default", CSRF: hostile, Path: "/t/default/?a=b&c d"}
	for _, c := range []struct {
		part component
		want string
	}{
		{pair("in text", hostile), "<dd>" + quoted + "</dd>"},
		{p.csrf(), `value="` + quoted + `"`},
		{search("q", hostile, hostile, hostile), `placeholder="` + quoted + `"`},
		{banner(hostile, "warn", ""), `class="banner ` + quoted + `"`},
		{mark(hostile), `class="mark other"`},
		{Record{Class: hostile}.line(p), `class="by-` + quoted + `"`},
		{paging("javascript:alert(1)", ""), `href="?javascript%3Aalert%281%29="`},
		{paging("//evil.example", ""), `href="?%2F%2Fevil.example="`},
		{paging("", "?after=x&state=open"), `href="?after=x&amp;state=open"`},
		{headingTo("", " javascript:x", ""), `href="#"`},
		{headingTo("", "data:text/html,x", ""), `href="#"`},
		{headingTo("", "https://evil.example", ""), `href="#"`},
		{headingTo("", "//evil.example", ""), `href="#"`},
		{headingTo("", `/\evil.example`, ""), `href="#"`},
		{headingTo("", "/\t/evil.example", ""), `href="#"`},
		{headingTo("", "", ""), `href="#"`},
		{headingTo("", "/", ""), `href="/"`},
		{headingTo("", "/t/a?b=c&d#e", ""), `href="/t/a?b=c&amp;d#e"`},
		{headingTo("", "?a=b", ""), `href="?a=b"`},
		{p.planLink("javascript:x"), `href="/t/default/plans/javascript:x"`},
		{p.planLink("../../a b?c#d"), `href="/t/default/plans/..%2F..%2Fa%20b%3Fc%23d"`},
		{p.factLink(`a&b=c#d e+"%41`), `href="/t/default/memory/fact?key=a%26b%3Dc%23d+e%2B%22%2541"`},
		{Failure{Status: 401}.body(p), `href="/login?next=%2Ft%2Fdefault%2F%3Fa%3Db%26c+d"`},
		{Plan{Tree: Tree{Plan: api.Plan{State: "open", Plan: "javascript:x"}}}.act(&Page{Operator: "ana", Acts: true}),
			`formaction="/t//plans/javascript:x/cancel"`},
		{(&Tree{Rows: []Row{{Action: api.Action{Action: hostile}}}}).tree(p), `<span class="id v">` + quoted},
		{payload("raw", json.RawMessage(`</pre><script>`)), "&lt;/pre&gt;&lt;script&gt;</pre>"},
	} {
		if got := rendered(c.part); !strings.Contains(got, c.want) {
			t.Errorf("%s, want %s in it", got, c.want)
		}
	}
}

func rendered(c component) string {
	var page out
	c(&page)
	return page.String()
}

// trust finds what takes a value as it is, and the places where no escaping helps.
var trust = regexp.MustCompile(
	`templ\.[A-Z]|\.markup\(|<style|<!--|` +
		`\bstyle=|\son\w+=|\b(srcdoc|srcset)=|\{ \w+\.\.\. \}|@templ|script \w+\(|css \w+\(`)

// TestNoTemplateTrustsAValue looks for it in the templates, and in the code beside them.
func TestNoTemplateTrustsAValue(t *testing.T) {
	t.Parallel()
	templates, err := filepath.Glob("*.templ")
	if err != nil || len(templates) < len(bodies) {
		t.Fatalf("%d templates: %v", len(templates), err)
	}
	code, err := filepath.Glob("[a-z]*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(templates, code...) {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_templ.go") || name == "out.go" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range trust.FindAllString(string(text), -1) {
			t.Errorf("%s has %q", name, found)
		}
	}
	for _, bad := range []string{
		`@templ.Raw(x)`, `out.markup(x)`, `href={ templ.SafeURL(x) }`, `<p style={ x }>`, `<p onclick={ x }>`, `<p { attrs... }>`,
		`script f(x string) {`, `css f(x string) {`, `<style>`, `<!-- { x } -->`,
	} {
		if !trust.MatchString(bad) {
			t.Errorf("the test does not find %s", bad)
		}
	}
}

// TestEveryStateHasAPicture draws each.
func TestEveryStateHasAPicture(t *testing.T) {
	t.Parallel()
	for _, state := range append(states, "no such state") {
		out := rendered(mark(state))
		if strings.Count(out, "<path")+strings.Count(out, "<circle") == 0 {
			t.Errorf("state %q has no picture: %s", state, out)
		}
	}
}
