//go:build exercise

package torture

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// outside is the world as agents and workers of other processes see it: a
// counting HTTP service. It makes and unmakes things, treats one key as one
// effect, and syncs each call to a ledger of its own before it answers. It refuses to
// make a thing whose undo came first, but for slow things, which it makes a while
// after it was asked, whoever still waits. Nothing that is crashed holds a byte of it.
type outside struct {
	url  string
	file *os.File

	mu       sync.Mutex
	calls    map[string]map[string]int // "verb thing" -> key -> calls
	standing map[string]bool
	barred   map[string]bool // things whose undo came before their forward
	late     int             // forwards refused for that
	landed   int             // slow things that were made when nobody waited any more
	found    int             // of these, such as a probe has found
	hung     map[string]bool // those that a probe may find
	lines    int
	shut     chan struct{} // not nil: undos wait until it is closed
	waiting  int           // undos at a shut door
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{calls: map[string]map[string]int{}, standing: map[string]bool{}, barred: map[string]bool{},
		hung: map[string]bool{}}
	var err error
	if o.file, err = os.Create(filepath.Join(t.TempDir(), "outside")); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: o}
	go server.Serve(listener) // ends with Close
	t.Cleanup(func() {
		server.Close()
		o.file.Close()
	})
	return o
}

// ServeHTTP takes one call: verb, thing and key.
func (o *outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("verb") == unmakeThing && !o.enter(r) {
		return // its worker is dead, and nothing has happened
	}
	if q.Get("verb") == lookForThing {
		w.WriteHeader(o.look(q.Get("thing")))
		return
	}
	slowly := q.Get("verb") == makeSlowly || q.Get("verb") == makeProbed
	if slowly {
		<-time.After(rand.N(slowest))
	}
	code, err := o.act(q.Get("verb"), q.Get("thing"), q.Get("key"))
	if slowly && r.Context().Err() != nil {
		o.mu.Lock()
		o.landed++
		o.hung[q.Get("thing")] = true
		o.mu.Unlock()
	}
	if err == nil {
		err = o.file.Sync() // calls of one moment share it
	}
	if err != nil {
		code = http.StatusInternalServerError
	}
	w.WriteHeader(code)
}

// look says whether a thing stands: conflict where it does not.
func (o *outside) look(thing string) (code int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.standing[thing] {
		return http.StatusConflict
	}
	if o.hung[thing] {
		delete(o.hung, thing)
		o.found++
	}
	return http.StatusOK
}

func (o *outside) act(verb, thing, key string) (code int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if verb == makeSlowly || verb == makeProbed {
		verb = makeThing
	} else if verb == makeThing && o.barred[thing] {
		o.late++
		return http.StatusConflict, nil // nothing happens, and the agent is told so
	}
	if _, err := fmt.Fprintf(o.file, "%s %s %s\n", verb, thing, key); err != nil {
		return 0, err
	}
	o.lines++
	what := verb + " " + thing
	if o.calls[what] == nil {
		o.calls[what] = map[string]int{}
	}
	o.calls[what][key]++
	switch {
	case verb == makeThing:
		o.standing[thing] = true
	case o.standing[thing]:
		delete(o.standing, thing)
	case o.calls[makeThing+" "+thing] == nil:
		o.barred[thing] = true
	}
	return http.StatusOK, nil
}

// enter waits at a shut door. It returns false when the one who asks is gone before
// the door is open.
func (o *outside) enter(r *http.Request) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.shut != nil {
		door := o.shut
		o.waiting++
		o.mu.Unlock()
		select {
		case <-door:
		case <-r.Context().Done():
		}
		o.mu.Lock()
		o.waiting--
		if r.Context().Err() != nil {
			return false
		}
	}
	return true
}

// shutDoor lets undos wait before anything happens.
func (o *outside) shutDoor() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = make(chan struct{})
}

// openDoor lets undos happen again.
func (o *outside) openDoor() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.shut)
	o.shut = nil
}

// atDoor is how many undos wait at a shut door.
func (o *outside) atDoor() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting
}

// called tells how often an undo or a forward of a thing was called.
func (o *outside) called(verb, thing string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, calls := range o.calls[verb+" "+thing] {
		n += calls
	}
	return n
}

// things returns what stands now.
func (o *outside) things() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.standing)
}

// doubled lists forwards that were called twice, and undos under a key that is not
// their own. duties are the actions whose undo was owed and called once more, under
// the key of that duty: the ledger must know them. again is how many undos came
// again under their key.
func (o *outside) doubled() (double, duties []string, again int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for what, keys := range o.calls {
		verb, thing, _ := strings.Cut(what, " ")
		plan, action, _ := strings.Cut(thing, "/")
		for key, calls := range keys {
			switch {
			case verb == makeThing && (calls > 1 || len(keys) > 1):
				double = append(double, fmt.Sprintf("%s %v", what, keys))
			case verb == makeThing:
			case key == ledger.Key(tortureTenant, plan, action, ledger.PurposeUndo):
				again += calls - 1
			case key == ledger.Key(tortureTenant, plan, action+lateDuty, ledger.PurposeUndo):
				duties = append(duties, thing+lateDuty)
				again += calls - 1
			default:
				double = append(double, fmt.Sprintf("%s %v", what, keys))
			}
		}
	}
	slices.Sort(double)
	return double, duties, again
}

// lateDuty ends the name of the action that is owed once more, because its forward
// said that it succeeded after its undo.
const lateDuty = "~1"

// checkLedger reads the world's own ledger back: it must hold every call that was
// answered.
func (o *outside) checkLedger(t *testing.T) {
	t.Helper()
	file, err := os.Open(o.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	counts := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		counts[lines.Text()]++
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	total := 0
	for what, keys := range o.calls {
		for key, n := range keys {
			if total += n; counts[what+" "+key] != n {
				t.Errorf("%s %s: %d calls, %d in the world's ledger", what, key, n, counts[what+" "+key])
			}
		}
	}
	if total != o.lines {
		t.Errorf("%d calls, %d lines in the world's ledger", total, o.lines)
	}
}

// callOutside is what agents and workers do to the world. refused: it has not
// happened and never will, because its undo came first.
func callOutside(ctx context.Context, service, verb, thing, key string) (refused bool, err error) {
	query := url.Values{"verb": {verb}, "thing": {thing}, "key": {key}}
	ctx, cancel := context.WithTimeout(ctx, testenv.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, service+"/?"+query.Encode(), nil)
	if err != nil {
		return false, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err
	}
	response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return false, nil
	case http.StatusConflict:
		return true, nil
	}
	return false, fmt.Errorf("the world says %s", response.Status)
}
