package console

import (
	"encoding/json"
	"html/template"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// bodies are what each page is filled with.
var bodies = map[string]any{
	"overview": overviewBody{}, "plans": plansBody{}, "plan": planBody{}, "preview": previewBody{},
	"quarantine": quarantineBody{}, "obligation": obligationBody{}, "leases": leasesBody{},
	"memory": memoryBody{}, "fact": factBody{}, "ledger": ledgerBody{}, "record": recordBody{},
	"capabilities": capabilitiesBody{}, "health": healthBody{}, "tenants": []tenantRow{},
	"signin": signInBody{}, "failure": failureBody{},
}

// injected are texts that would run, close, hide or lead somewhere if a page let them.
var injected = []string{
	`"><script>window.pwned=1</script>`, `' onmouseover='x`, "<!--", "</title></style></textarea>",
	"javascript:alert(1)", "//evil.example/x", "a?b#c&d=%41 +é\u202e\a", "{{.}}", `\`, "`", "", "a",
}

// addresses are the fields that a page has as a whole link.
var addresses = map[string]bool{"First": true, "Next": true}

// states are all that have a picture.
var states = slices.Sorted(maps.Keys(marks))

// TestEveryPageEscapesAsTheStandardLibraryDoes fills every page with hostile values of all
// its fields, and holds it against what html/template makes of the same page.
func TestEveryPageEscapesAsTheStandardLibraryDoes(t *testing.T) {
	t.Parallel()
	all, err := parsePages()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pageNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oracle := template.Must(template.New("").Funcs(words).ParseFS(web,
				"web/page.html", "web/parts.html", "web/"+name+".html"))
			for seed := range uint64(200) {
				random := rand.New(rand.NewPCG(seed, 1))
				page := reflect.New(reflect.TypeFor[Page]()).Elem()
				fill(random, page, 0)
				body := reflect.New(reflect.TypeOf(bodies[name])).Elem()
				fill(random, body, 0)
				page.FieldByName("Body").Set(body)
				var got, want strings.Builder
				if err := all[name].Execute(&got, "page", page.Interface()); err != nil {
					t.Fatal(err)
				}
				if err := oracle.ExecuteTemplate(&want, "page", page.Interface()); err != nil {
					t.Fatal(err)
				}
				// What only the eye cannot see is an escape here, and itself there.
				same(t, escaped(got.String(), true), escaped(want.String(), true))
				if seen := exact.ReplaceAllString(got.String(), ""); strings.ContainsAny(seen, hidden) {
					t.Fatalf("hidden characters are shown as they are: %q", seen)
				}
			}
		})
	}
}

// TestEveryStateHasAPicture draws each.
func TestEveryStateHasAPicture(t *testing.T) {
	t.Parallel()
	all, err := parsePages()
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range append(states, "no such state") {
		var out strings.Builder
		if err := all["plans"].Execute(&out, "mark", state); err != nil {
			t.Fatal(err)
		}
		if drawn := strings.Count(out.String(), "<path") + strings.Count(out.String(), "<circle"); drawn == 0 {
			t.Errorf("state %q has no picture: %s", state, out.String())
		}
	}
}

// hidden are characters of injected that cannot be seen, exact the attributes that people
// do not see and that have a value as it is.
const hidden = "\u202e\a"

var exact = regexp.MustCompile(` (value|href|id|class|data-[a-z]+)="[^"]*"`)

// same compares two pages. html/template writes "+" as an entity too, and "#ZgotmplZ" for
// an address that it does not trust.
func same(t *testing.T, got, want string) {
	t.Helper()
	want = strings.NewReplacer("&#43;", "+", "#ZgotmplZ", "#").Replace(want)
	if got == want {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	around := func(s string) string { return s[max(0, at-60):min(len(s), at+60)] }
	t.Fatalf("at %d:\n%q\nhtml/template:\n%q", at, around(got), around(want))
}

// fill sets every field that can be reached, at random.
func fill(random *rand.Rand, v reflect.Value, depth int) {
	if !v.CanSet() {
		return
	}
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes([]byte(injected[random.IntN(len(injected))]))
		return
	}
	switch v.Kind() {
	case reflect.String:
		text := injected[random.IntN(len(injected))]
		if random.IntN(2) == 0 {
			text = states[random.IntN(len(states))]
		}
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(random.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(random.Float64() * 200)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			fill(random, f, depth+1)
			if name := v.Type().Field(i).Name; f.Kind() == reflect.String && addresses[name] {
				f.SetString("/t?" + f.String()) // markup refuses other sites, html/template does not
			}
		}
	case reflect.Pointer:
		if depth < 6 && random.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(random, v.Elem(), depth+1)
		}
	case reflect.Slice:
		if depth < 8 {
			v.Set(reflect.MakeSlice(v.Type(), random.IntN(3), 2))
			for i := range v.Len() {
				fill(random, v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range random.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(random, key, depth+1)
			fill(random, value, depth+1)
			v.SetMapIndex(key, value)
		}
	default:
		switch {
		case v.CanInt():
			v.SetInt(random.Int64N(3) * random.Int64N(100))
		case v.CanUint():
			v.SetUint(random.Uint64N(3) * random.Uint64N(100))
		}
	}
}
