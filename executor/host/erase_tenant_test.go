package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

var errStepKilled = errors.New("the process dies here")

// eraseTenant asks for the erasure of the tenant, and returns what is answered in this time.
func (r *rig) eraseTenant(q api.TenantErasureQuery,
	within time.Duration) (answer api.TenantErasureAnswer, err error) {
	r.t.Helper()
	body, _ := json.Marshal(q)
	m, err := r.conn.Request(api.AdminSubject("t", "tenant.erase"), body, within)
	if err == nil {
		err = readAnswer(m.Data, &answer)
	}
	return answer, err
}

// mode asks a host's status until it is of this mode.
func (r *rig) mode(want string) (status api.Status) {
	r.t.Helper()
	for deadline := time.Now().Add(testenv.Patience); status.Mode != want; {
		m, err := r.conn.Request(api.QuerySubject("t", "status"), nil, askAgain)
		var answer api.StatusAnswer
		if err == nil && json.Unmarshal(m.Data, &answer) == nil {
			status = answer.Status
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the tenant is %q, want %q: %+v", status.Mode, want, status)
		}
	}
	return status
}

// erasedWhole waits until the erasure is done, and checks what is left.
func (r *rig) erasedWhole(secret string, folders ...string) api.TenantErasure {
	r.t.Helper()
	var status api.Status
	for deadline := time.Now().Add(testenv.Patience); status.Erased == nil || status.Erased.Done == nil; {
		if status = r.mode(api.ModeErased); time.Now().After(deadline) {
			r.t.Fatalf("%+v", status.Erased)
		}
	}
	if there, err := jetstream.HasKeys(r.t.Context(), jetstream.Config{Conn: r.conn, Tenant: "t"}); err != nil || there {
		r.t.Errorf("the keys of plans: %v, %v", there, err)
	}
	if stream, err := jetstream.Inspect(r.t.Context(), r.conn, "t"); err != nil || stream.There {
		r.t.Errorf("the ledger: %+v, %v", stream, err)
	}
	for deadline := time.Now().Add(testenv.Patience); ; <-time.After(20 * time.Millisecond) {
		left := r.leftOf(secret, folders...)
		if len(left) == 0 {
			return *status.Erased
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("it is left: %q", left)
		}
	}
}

// leftOf are the files that have a text, and those that are named for the tenant.
func (r *rig) leftOf(secret string, folders ...string) (left []string) {
	for _, folder := range folders {
		_ = filepath.WalkDir(filepath.Join(r.dir, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				if err == nil && (entry.Name() == "t" || strings.HasSuffix(entry.Name(), "_t")) {
					left = append(left, path)
				}
				return nil
			}
			text, _ := os.ReadFile(path)
			if strings.HasPrefix(entry.Name(), "MANIFEST-") && !r.restarted {
				return nil // names of rows go with the manifest, at the next start
			}
			if bytes.Contains(text, []byte(secret)) || entry.Name() == "t.key" {
				left = append(left, path)
			}
			return nil
		})
	}
	return left
}

// TestATenantIsErasedWhereverItsHostIsKilled: the next one goes on; what is left is one record,
// which the tenant's own key has signed when it was asked for and when it was done.
func TestATenantIsErasedWhereverItsHostIsKilled(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"", "mark", "key", "streams", "rows", "snapshots", "tiles", "record",
		"mark of the end", "signing keys"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			eraseKilledAt(t, step)
		})
	}
}

const secret = "what-only-this-tenant-says" // is the name of a plan

// eraseKilledAt has the host that erases die before a step, and the next one go on.
func eraseKilledAt(t *testing.T, step string) {
	r, _ := keyRig(t)
	r.keys = nil
	r.serve(done)
	r.erasing = func(name string) error {
		if name == step {
			return errStepKilled
		}
		return nil
	}
	_, stop := r.host("h1")
	r.charge("p", sealed(r.planKey("agent", "p"), "t", "p", "a1", `"4000"`))
	r.eventually("the host holds the tenant", func() bool { return r.status().Mode == api.ModeHolding })
	q := api.TenantErasureQuery{Tenant: "t", Reason: "the contract has ended", Actor: "ana"}
	if answer, err := r.eraseTenant(q, 5*time.Second); err != nil || answer.Erasure != nil ||
		!strings.Contains(answer.Refused, "1 plans are open") {
		t.Fatalf("an open plan: %+v, %v", answer, err)
	}
	r.fail("p")
	r.ended("p")
	r.charge(secret, json.RawMessage(`1`))
	r.fail(secret)
	r.ended(secret)
	if len(r.leftOf(secret, "nats", "h1")) == 0 || len(r.leftOf("-", "keys")) == 0 {
		t.Fatal("nothing is there, so that this test shows nothing")
	}
	other := q
	other.Tenant = "u"
	if answer, err := r.eraseTenant(other, 5*time.Second); !strings.Contains(says(err), "request.tenant") {
		t.Fatalf("another name: %+v, %v", answer, err)
	}
	answer, err := r.eraseTenant(q, 2*time.Second)
	if (err == nil) != (step == "") {
		t.Fatalf("%+v, %v", answer, err)
	}
	r.mode(api.ModeErased)
	stop()
	r.goesOn(q)
}

// goesOn starts a host that ends the erasure, and checks what it leaves.
func (r *rig) goesOn(q api.TenantErasureQuery) {
	t := r.t
	r.erasing = nil
	_, stop := r.host("h1")
	defer stop()
	e := r.erasedWhole(secret, "nats", "h1", "keys")
	if e.Actor != "ana" || e.Records == 0 || len(e.Root) == 0 || e.Kid == "" || len(e.Notes) != 2 {
		t.Fatalf("%+v", e)
	}
	for i, note := range e.Notes {
		said, err := proof.OpenErasure("t", e.Key, note)
		if err != nil || said.Reason != q.Reason || (said.Done == nil) != (i == 0) {
			t.Errorf("%+v, %v", said, err)
		}
	}
	for range 2 { // again is harmless
		again, err := r.eraseTenant(q, 10*time.Second)
		if err != nil || again.Erasure == nil || again.Erasure.AtNs != e.AtNs {
			t.Errorf("again: %+v, %v", again, err)
		}
	}
	stop()
	r.restarted = true
	_, stop = r.host("h1")
	defer stop()
	r.erasedWhole(secret, "nats", "h1", "keys")
	if answer, err := r.sealKey("agent", "new"); len(answer.Key) != 0 ||
		!strings.Contains(says(err), "was erased by ana") {
		t.Errorf("a key: %+v, %v", answer, err)
	}
	stop()
	r.tenants, r.follow = []string{}, true // nothing names it but what is beside the tiles
	_, stop = r.host("h1")
	defer stop()
	r.mode(api.ModeErased)
}

// TestHostsThatStandByEraseTheirPartToo, those that run at once, and those that do not when
// they start: none brings the tenant back.
func TestHostsThatStandByEraseTheirPartToo(t *testing.T) {
	t.Parallel()
	r, _ := keyRig(t)
	r.keys, r.ownKeys = nil, true
	r.serve(done)
	_, stop1 := r.host("h1")
	defer stop1()
	_, stop2 := r.host("h2")
	defer stop2()
	_, stop3 := r.host("h3")
	r.charge(secret, sealed(r.planKey("agent", secret), "t", secret, "a1", `"4000"`))
	r.fail(secret)
	r.ended(secret)
	var waiting sync.WaitGroup
	for _, host := range []string{"h1", "h2", "h3"} { // each has the key
		waiting.Go(func() {
			late := time.After(testenv.Patience)
			for len(r.leftOf("-", "keys-"+host)) == 0 {
				select {
				case <-time.After(time.Millisecond):
				case <-late:
					t.Errorf("host %s was not given the key", host)
					return
				}
			}
		})
	}
	waiting.Wait()
	stop3()
	answer, err := r.eraseTenant(api.TenantErasureQuery{Tenant: "t", Reason: "x", Actor: "ana"}, 30*time.Second)
	if err != nil || answer.Erasure == nil || answer.Erasure.Done == nil {
		t.Fatalf("%+v, %v", answer, err)
	}
	r.erasedWhole(secret, "nats", "h1", "h2", "keys-h1", "keys-h2")
	if len(r.leftOf(secret, "keys-h3")) == 0 {
		t.Fatal("the host that is away has nothing left, so that this test shows nothing")
	}
	_, stop3 = r.host("h3")
	r.erasedWhole(secret, "nats", "h3", "keys-h3")
	stop1()
	stop2()
	stop3()
	r.restarted = true
	for _, name := range []string{"h1", "h2", "h3"} {
		_, stop := r.host(name)
		defer stop()
	}
	r.erasedWhole(secret, "nats", "h1", "h2", "h3", "keys-h1", "keys-h2", "keys-h3")
}
