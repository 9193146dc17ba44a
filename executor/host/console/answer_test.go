package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
)

// TestARetryUnderANewKeyFromTheConsole: the form offers it once an attempt was made, and says what
// it may do.
func TestARetryUnderANewKeyFromTheConsole(t *testing.T) {
	s := newStage(t, nil)
	p := s.begin(s.coder, coordinator.PlanSpec{ID: "p1"})
	s.do(p, "registry.publish v2")
	s.end(p, "not this version")
	v := visit(t, s)
	csrf := v.signIn()
	if _, page := v.get("/t/default/quarantine/p1/1"); !strings.Contains(page, `name="new_key"`) ||
		!strings.Contains(page, "does it twice") {
		t.Errorf("the form does not offer a new key:\n%s", page)
	}
	before := s.plan("p1").Actions[0].Key
	form := url.Values{"csrf": {csrf}, "as": {"retry"}, "reason": {"it stands there"}, "new_key": {"1"}, "token": {token}}
	if answer, page := v.post("/t/default/quarantine/p1/1", form); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("%s\n%s", answer.Status, page)
	}
	if after := s.plan("p1").Actions[0].Key; after == before || len(after) != len(before) {
		t.Errorf("its key was %s, and is %s", before, after)
	}
}
