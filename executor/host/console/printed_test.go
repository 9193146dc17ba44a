package console_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/executor/host/console"
	"github.com/sagenbaum/sagenbaum/executor/host/console/access"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// printedGo are what values of Go look like where one is printed as it is, and no page has
// otherwise: JSON has quotes behind a brace, and people write no such things.
var printedGo = map[string]*regexp.Regexp{
	"a struct":            regexp.MustCompile(`\{\s*[^"\s}]|\{ +\}`),
	"a pointer":           regexp.MustCompile(`&\{|\b0x[0-9a-f]{4,}`),
	"a map":               regexp.MustCompile(`\bmap\[`),
	"a verb of fmt":       regexp.MustCompile(`%!`),
	"nothing":             regexp.MustCompile(`<nil>|\(nil\)`),
	"bytes":               regexp.MustCompile(`\[\d+( \d+)+\]`),
	"a Protobuf message":  regexp.MustCompile(`\b[a-z_]+:[{"]`),
	"a Go value in full":  regexp.MustCompile(`\b[a-z]+\.[A-Z]\w*\{|\[\][a-z]\w*(\.\w+)?\{`),
	"a time as Go has it": regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}|m=[+-]\d|time\.Date\(`),
}

// printed are the texts of a page that look like a printed Go value.
func printed(page string) (found []string) {
	look := func(text string) {
		for what, like := range printedGo {
			if like.MatchString(text) {
				found = append(found, fmt.Sprintf("%s: %.200q", what, strings.TrimSpace(text)))
			}
		}
	}
	for z := html.NewTokenizer(strings.NewReader(page)); ; {
		kind, token := z.Next(), z.Token()
		switch {
		case kind == html.ErrorToken && z.Err() == io.EOF:
			slices.Sort(found)
			return found
		case kind == html.ErrorToken:
			return append(found, z.Err().Error())
		case kind == html.TextToken:
			look(token.Data)
		}
		for _, a := range token.Attr {
			look(a.Val)
		}
	}
}

// walker goes through the console from link to link.
type walker struct {
	*visitor
	seen  map[string]bool // addresses
	kinds map[string]int  // pages by the route that answers
	todo  []string
	mux   *http.ServeMux // says which route answers an address
}

// kindMax is how many pages of a route are read: they differ by what their plans have been
// through, and not by which plan it is.
const kindMax = 200

func (w *walker) walk() {
	w.t.Helper()
	for len(w.todo) > 0 {
		at := w.todo[0]
		w.todo = w.todo[1:]
		kind := w.kind(http.MethodGet, at)
		if w.seen[at] || kind == "" || w.kinds[kind] >= kindMax {
			continue
		}
		w.seen[at] = true
		answer, page := w.get(at)
		w.read(at, page)
		if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
			w.todo = append(w.todo, answer.Header.Get("Location"))
			continue
		}
		w.kinds[kind]++
		from, err := url.Parse(at)
		must(w.t, err)
		for _, link := range hrefs(page) {
			to, err := from.Parse(link)
			if err != nil {
				w.t.Errorf("%s leads to %q: %v", at, link, err)
				continue
			}
			to.Fragment = ""
			w.todo = append(w.todo, to.RequestURI())
		}
	}
}

func (w *walker) read(at, page string) {
	w.t.Helper()
	for _, found := range printed(page) {
		w.t.Errorf("%s has %s", at, found)
	}
}

// kind is the route of a page, or "" for what is none.
func (w *walker) kind(method, at string) string {
	r, err := http.NewRequest(method, "http://console"+at, nil)
	if err != nil || at == "" {
		return ""
	}
	_, pattern := w.mux.Handler(r)
	return pattern
}

func hrefs(page string) (links []string) {
	for z := html.NewTokenizer(strings.NewReader(page)); z.Next() != html.ErrorToken; {
		token := z.Token()
		for _, a := range token.Attr {
			if a.Key == "href" && (token.Data == "a" || token.Type == html.StartTagToken && token.Data == "area") {
				links = append(links, a.Val)
			}
		}
	}
	return links
}

// everyState brings a plan into each state that a plan can be in, and has a record refused, a fact
// retracted and a key erased.
func (s *stage) everyState() {
	ctx := context.Background()
	s.play()
	s.judged()
	s.lively()
	s.t.Cleanup(func() { close(s.gates["live-1"]) }) // before the worker waits for it
	s.append(ledger.Source{Tenant: tenant, Class: ledger.ClassOperator, Name: "ana"}, &pb.Record{
		Plan: "live-1", Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{
			Reason: "the index is moved tomorrow", Actor: "ana"}},
	})
	nothing := s.begin(s.coder, coordinator.PlanSpec{ID: "nothing-1", Label: "nothing to do"})
	s.end(nothing, "there was nothing to do")
	doubt := s.begin(s.travel, coordinator.PlanSpec{ID: "doubt-1", Label: "one more room"})
	_, err := doubt.Do(ctx, coordinator.Action{ID: "room", Capability: "hotel.book",
		Input: map[string]any{"name": "riverside"}}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		return coordinator.Outcome{}, errors.New("the connection broke")
	})
	if err == nil {
		s.t.Error("a forward whose answer was lost has succeeded")
	}
	waiting, cancel := context.WithCancel(ctx)
	go func() { _ = doubt.Commit(waiting) }()
	s.t.Cleanup(cancel)
	thanks := s.plan("thank-you")
	for _, a := range thanks.Actions {
		if a.Undo == "quarantined" {
			s.append(ledger.Source{Tenant: tenant, Class: ledger.ClassOperator, Name: "ana"}, &pb.Record{
				Plan: "thank-you", Action: a.Action, Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{
					Outcome: pb.Resolution_RESOLUTION_ACCEPTED, Reason: "nobody minds", Evidence: "letter 7", Actor: "ana",
					Halt: true}},
			})
		}
	}
	for _, kind := range []*pb.Record{
		{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "seat.10C"}}},
		{Plan: "nobody", Action: "a1", Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{
			Key: "k", Value: []byte("1")}}},
	} {
		s.append(ledger.Source{Tenant: tenant, Class: ledger.ClassFact, Name: "fares"}, kind)
	}
	s.append(ledger.Source{Tenant: tenant, Class: ledger.ClassOperator, Name: "ana"}, &pb.Record{
		Plan: "try-cache", Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Reason: "asked for", Actor: "ana"}},
	})
	for _, state := range []string{
		ledger.StateOpen, ledger.StateCommitting, ledger.StateUnwinding, ledger.StateQuarantined,
		ledger.StateCommitted, ledger.StateCompensated, ledger.StateFailed, ledger.StateResolved,
	} {
		until(s.t, "a plan that is "+state, func() bool {
			answer, err := s.host.Ask(tenant, "plan.find", api.FindQuery{State: state})
			must(s.t, err)
			return len(answer.(api.FindAnswer).Plans) > 0
		})
	}
}

// TestNoPageShowsAValueOfGo walks every page of the console, with plans in every state, and reads
// what it shows people: nothing there is a value of Go as fmt prints it.
func TestNoPageShowsAValueOfGo(t *testing.T) {
	s := newStage(t, func(c *console.Config) {
		write(t, c.Users, someone(t, "ana", access.Admin, access.Everywhere))
	})
	s.everyState()
	v := visit(t, s)
	_, page := v.get("/login")
	w := &walker{visitor: v, seen: map[string]bool{}, kinds: map[string]int{}, mux: http.NewServeMux()}
	w.read("/login", page)
	form := url.Values{"csrf": {v.enter("ana")}, "token": {tokenOf("ana")}}
	routes := console.Routes()
	for pattern := range routes {
		w.mux.Handle(pattern, http.NotFoundHandler())
	}
	delete(routes, "GET /t/{tenant}/events") // a stream, and no page
	delete(routes, "GET /{$}")               // leads to another
	w.todo = []string{
		"/", "/tenants", "/sessions", "/t/" + tenant + "/", "/t/second/",
		"/t/" + tenant + "/memory/fact?key=seat.10C", "/t/" + tenant + "/memory/fact?key=none",
		"/t/nobody/", "/t/" + tenant + "/plans/none", "/t/" + tenant + "/plans?state=none",
		"/t/" + tenant + "/plans?q=live&age=1h", "/t/" + tenant + "/ledger/999999", "/t/" + tenant + "/ledger/x",
	}
	for at := s.settle(); at > 0; at-- { // each kind of record
		w.todo = append(w.todo, fmt.Sprintf("/t/%s/ledger/%d", tenant, at))
	}
	w.walk()
	for pattern := range routes {
		method, path, _ := strings.Cut(pattern, " ")
		if method == http.MethodGet {
			if w.kinds[pattern] == 0 {
				t.Errorf("%s: no page led there, and the walk has not seen it", pattern)
			}
			continue
		}
		at := strings.NewReplacer("{tenant}", tenant, "{plan}", "offsite-june", "{action}", "1").Replace(path)
		_, page := v.post(at, form) // without a reason, which a page says
		w.read(pattern, page)
	}
	if len(w.seen) < 60 {
		t.Errorf("the walk saw %d pages only", len(w.seen))
	}
}

// TestAPrintedValueOfGoIsFound plants one of each kind in a page that has none, in a text and in
// an attribute.
func TestAPrintedValueOfGoIsFound(t *testing.T) {
	t.Parallel()
	const clean = `<!doctype html><title>A</title><p title="B">C {"a": {"b": [1, 2]}} {} []</p><pre>{
  "x": 1
}</pre>`
	if found := printed(clean); len(found) > 0 {
		t.Fatalf("JSON was taken for a value of Go: %q", found)
	}
	n := 1
	values := map[string]any{
		"struct": api.Savepoint{Name: "a", Actions: 2}, "pointer": &api.Savepoint{}, "map": map[string]int{"a": 1},
		"address": &n,
		"nil":     nil, "error": error(nil), "bytes": []byte("ab"), "time": time.Unix(0, 0), "now": time.Now(),
		"message": &pb.FactAsserted{Key: "k"}, "structs": []api.Savepoint{{Name: "a"}}, "func": printed,
		"record": &pb.Record{Plan: "p"},
	}
	for name, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v"} {
			text := fmt.Sprintf(verb, value)
			for _, place := range []string{">C", `title="B`, ">A"} {
				planted := strings.Replace(clean, place, place+" "+html.EscapeString(text), 1)
				if len(printed(planted)) == 0 {
					t.Errorf("%s as %s at %s is not found: %s", name, verb, place, text)
				}
			}
		}
	}
	for _, text := range []string{"%!d(string=a)", "%!s(int=7)", "1 %!v(MISSING)", "%!(EXTRA int=1)"} {
		if len(printed("<p>"+html.EscapeString(text)+"</p>")) == 0 {
			t.Errorf("%s is not found", text)
		}
	}
}
