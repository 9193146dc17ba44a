package access_test

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// TestWhatIsWiderIsFound: a subject with wildcards is covered only by one that matches all of it.
func TestWhatIsWiderIsFound(t *testing.T) {
	most := access.Permissions{Publish: []string{"a.*.c", "d.>", "e"}, Subscribe: []string{"q.* workers", "r.>"}}
	for subject, covered := range map[string]bool{"publish a.b.c": true, "publish a.*.c": true, "publish a.>": false,
		"publish a.b": false, "publish a.b.c.d": false, "publish d.x.y": true, "publish d.>": true, "publish d": false,
		"publish d.*": true, "publish e": true, "publish *": false, "publish >": false, "publish e.f": false,
		"publish a.b.*": false, "subscribe q.x workers": true, "subscribe q.x": false, "subscribe q.x others": false,
		"subscribe q.> workers": false, "subscribe r.x others": true, "subscribe r.x": true} {
		kind, what, _ := strings.Cut(subject, " ")
		p := access.Permissions{Publish: []string{what}}
		if kind == "subscribe" {
			p = access.Permissions{Subscribe: []string{what}}
		}
		wider := p.Wider(most)
		if got := len(wider) == 0; got != covered || !got && wider[0] != subject {
			t.Errorf("%s: %v", subject, wider)
		}
	}
}

// TestTheRoleOfPermissionsIsGuessed: of every user its own role, or one that may do the same.
func TestTheRoleOfPermissionsIsGuessed(t *testing.T) {
	for _, u := range outside() {
		got, wider, ok := access.Guess(u.Account(), u.Permissions())
		if !ok || len(wider) > 0 || got.Role != u.Role || got.Name != u.Name || got.Tenant != u.Tenant {
			t.Errorf("%s %s is taken for %s %s: %v", u.Role, u.ID(), got.Role, got.ID(), wider)
		}
	}
	for _, account := range []string{"APP", "$G"} {
		if u, _, ok := access.Guess(account, access.Permissions{Publish: []string{">"}}); ok {
			t.Errorf("account %s has a %s", account, u.Role)
		}
	}
}
