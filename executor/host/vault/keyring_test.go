package vault

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
)

// stage is a server with the keys of tenant t, and the keyrings of hosts.
type stage struct {
	dir  string // of the server
	conn *nats.Conn
	mu   sync.Mutex
	all  []*Keyring
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{dir: t.TempDir()}
	srv, err := embedded.Start(embedded.Config{Dir: s.dir, Port: -1})
	if err == nil {
		s.conn, err = srv.Connect()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close(); srv.Close() })
	return s
}

func (s *stage) config() jetstream.Config { return jetstream.Config{Conn: s.conn, Tenant: "t"} }

// ring is the keyring of a host with a folder of its own, which asks the others for keys.
func (s *stage) ring(t *testing.T, master []byte, dir string) *Keyring {
	t.Helper()
	folder, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	k := New(Config{
		Tenant: "t", Master: master, Folder: folder, Log: slog.New(slog.DiscardHandler),
		Store: func(ctx context.Context) (KeyStore, error) { return jetstream.OpenKeys(ctx, s.config()) },
		HasStore: func(ctx context.Context) (bool, error) {
			return jetstream.HasKeys(ctx, s.config())
		},
		Fetch: func(_ context.Context, ask func(string) Asked) iter.Seq[Given] {
			return func(yield func(Given) bool) {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, other := range s.all {
					if given, ok := other.Give(ask("reply"), "reply"); ok && !yield(given) {
						return
					}
				}
			}
		},
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, k)
	return k
}

// former puts the key of a plan into the store as versions before this one did.
func (s *stage) former(t *testing.T, master []byte, plan string) (seal.Key, []byte) {
	t.Helper()
	store, err := jetstream.OpenKeys(t.Context(), s.config())
	if err != nil {
		t.Fatal(err)
	}
	key := seal.Key(bytes.Repeat([]byte(plan[:1]), seal.KeySize))
	box, err := wrap(master, key[:], bound("sagenbaum/key/v1", "t", plan, "agent"))
	if err != nil {
		t.Fatal(err)
	}
	value, _ := json.Marshal(wrapped{Agent: "agent", Key: box})
	if err := store.Create(t.Context(), plan, value); err != nil {
		t.Fatal(err)
	}
	return key, box
}

// TestKeysOfEarlierVersionsAreReadAndWrappedUnderTheTenants: nothing that the master key opens
// is in the server's files after that, and the keys are the same.
func TestKeysOfEarlierVersionsAreReadAndWrappedUnderTheTenants(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	want := map[string]seal.Key{}
	var boxes [][]byte
	for _, plan := range []string{"p", "q", "r"} {
		key, box := s.former(t, oldMaster, plan)
		want[plan] = key
		boxes = append(boxes, box)
	}
	// As those versions have made the stream: with one value a plan.
	client, err := js.New(s.conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.Stream(t.Context(), jetstream.KeysStreamName("t"))
	if err != nil {
		t.Fatal(err)
	}
	made := stream.CachedInfo().Config
	made.MaxMsgsPerSubject = 1
	if _, err := client.UpdateStream(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if wrong := s.ring(t, newMaster, t.TempDir()); true {
		_, err := wrong.Issue(t.Context(), "agent", "new")
		var refused *ledger.Refused
		if !errors.As(err, &refused) || !strings.Contains(refused.Problem, "does not open the keys of plans") {
			t.Errorf("another master key: %v", err)
		}
	}
	k := s.ring(t, oldMaster, t.TempDir())
	for plan, key := range want {
		if got, err := k.Issue(t.Context(), "agent", plan); err != nil || got != key {
			t.Errorf("%s before: %v", plan, err)
		}
	}
	if n, err := k.migrate(t.Context()); n != 3 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if n, err := k.migrate(t.Context()); n != 0 || err != nil {
		t.Fatalf("again: %d, %v", n, err)
	}
	for _, box := range boxes {
		if text := base64.StdEncoding.EncodeToString(box); occurs(t, s.dir, text) != 0 {
			t.Error("a key that is wrapped under the master key is in the server's files still")
		}
	}
	k = s.ring(t, oldMaster, k.Folder.Dir()) // as after a restart
	for plan, key := range want {
		if got, err := k.Issue(t.Context(), "agent", plan); err != nil || got != key {
			t.Errorf("%s after: %v", plan, err)
		}
	}
	if err := k.Destroy(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Issue(t.Context(), "agent", "q"); !errors.Is(err, jetstream.ErrKeyDestroyed) {
		t.Errorf("%v", err)
	}
	// One more of an earlier version, during an upgrade of several hosts.
	key, _ := s.former(t, oldMaster, "x")
	if got, err := k.Issue(t.Context(), "agent", "x"); err != nil || got != key {
		t.Errorf("%v", err)
	}
	if n, err := k.migrate(t.Context()); n != 1 || err != nil {
		t.Errorf("one more: %d, %v", n, err)
	}
}

// TestAReplacementThatWasCutOffIsFinished: both values of a plan are there, and the older one
// is the one to go, whether by another pass or by an erasure.
func TestAReplacementThatWasCutOffIsFinished(t *testing.T) {
	t.Parallel()
	for _, erase := range []bool{false, true} {
		s := newStage(t)
		key, box := s.former(t, oldMaster, "p")
		k := s.ring(t, oldMaster, t.TempDir())
		store, own, err := k.opened(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		value, err := k.wrap("p", planKey{"agent", key}, own)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.conn.Request("keys.t.p", value, nats.DefaultTimeout); err != nil {
			t.Fatal(err)
		}
		if occurs(t, s.dir, base64.StdEncoding.EncodeToString(box)) == 0 {
			t.Fatal("the older value is gone, so that this test shows nothing")
		}
		if erase {
			err = k.Destroy(t.Context(), "p")
		} else {
			_, err = k.migrate(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if occurs(t, s.dir, base64.StdEncoding.EncodeToString(box)) != 0 {
			t.Error("the older value is there still")
		}
		if _, err := store.Get(t.Context(), "p"); erase != errors.Is(err, jetstream.ErrKeyDestroyed) {
			t.Errorf("erased: %v; %v", erase, err)
		}
	}
}

// TestHostsHaveOneKeyOfATenant, however many make one at the same moment: the others are
// given it. Who has another master key is not.
func TestHostsHaveOneKeyOfATenant(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var rings []*Keyring
	for range 4 {
		rings = append(rings, s.ring(t, oldMaster, t.TempDir()))
	}
	var running sync.WaitGroup
	for i, k := range rings {
		running.Go(func() {
			for late := time.Now().Add(30 * time.Second); time.Now().Before(late); {
				if _, err := k.Issue(t.Context(), "agent", "p"); err == nil {
					return
				}
				k.mu.Lock()
				k.failed = nil
				k.mu.Unlock()
			}
			t.Errorf("host %d has no key", i)
		})
	}
	running.Wait()
	want, err := rings[0].Issue(t.Context(), "agent", "p")
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range rings {
		if got, err := k.Issue(t.Context(), "agent", "p"); err != nil || got != want || k.own.ID != rings[0].own.ID {
			t.Errorf("host %d: %v", i, err)
		}
		key, proposed, err := k.Folder.open("t", oldMaster)
		if err != nil || proposed || key.ID != rings[0].own.ID {
			t.Errorf("host %d: %+v, %v, %v", i, key, proposed, err)
		}
	}
	if _, err := s.ring(t, newMaster, t.TempDir()).Issue(t.Context(), "agent", "p"); !errors.Is(err, ErrNoTenantKey) ||
		Gone(err) {
		t.Errorf("another master key: %v", err)
	}
	asked := rings[0].asking(rings[0].own.ID, false)("reply")
	if _, ok := rings[0].Give(asked, "another"); ok {
		t.Error("a key is given on a reply subject that nobody has asked for")
	}
}

// TestAKeyThatIsNotInTheFolderIsWaitedFor: nothing is lost by a folder that is not there yet,
// and no second key is made. A folder of another server is refused.
func TestAKeyThatIsNotInTheFolderIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	dir := t.TempDir()
	k := s.ring(t, oldMaster, dir)
	want, err := k.Issue(t.Context(), "agent", "p")
	if err != nil {
		t.Fatal(err)
	}
	s.all = nil // the host is gone
	empty := s.ring(t, oldMaster, t.TempDir())
	if _, err := empty.Issue(t.Context(), "agent", "p"); !errors.Is(err, ErrNoTenantKey) || Gone(err) {
		t.Errorf("%v", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, tenantsFolder, "t.key"))
	if err == nil {
		err = os.WriteFile(filepath.Join(empty.Folder.Dir(), tenantsFolder, "t.key"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	empty.failed = nil
	if got, err := empty.Issue(t.Context(), "agent", "p"); err != nil || got != want {
		t.Errorf("with the file of the other host: %v", err)
	}
	foreign := t.TempDir()
	if _, err := newStage(t).ring(t, oldMaster, foreign).Issue(t.Context(), "agent", "p"); err != nil {
		t.Fatal(err)
	}
	_, err = s.ring(t, oldMaster, foreign).Issue(t.Context(), "agent", "p")
	var refused *ledger.Refused
	if !errors.As(err, &refused) || !strings.Contains(refused.Want, k.own.ID) {
		t.Errorf("the folder of another server: %v", err)
	}
}

// TestAHostThatHoldsNothingHasAKeyAsSoonAsThereIsOne.
func TestAHostThatHoldsNothingHasAKeyAsSoonAsThereIsOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first, second := s.ring(t, oldMaster, t.TempDir()), s.ring(t, oldMaster, t.TempDir())
	var there atomic.Bool // else the second might make the key, which the first cannot ask it for here
	second.HasStore = func(context.Context) (bool, error) { return there.Load(), nil }
	first.Announce = func(ask func(string) Asked) {
		there.Store(true)
		second.Give(ask("reply"), "reply")
	}
	running := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { second.Migrate(ctx); close(running) }()
	if _, err := first.Issue(t.Context(), "agent", "p"); err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := second.Folder.open("t", oldMaster); err == nil {
			break
		}
	}
	cancel()
	<-running
}

// occurs counts a text in all files of a folder.
func occurs(t *testing.T, dir, text string) (count int) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		count += bytes.Count(content, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// TestACopyOfTheDataAndTheMasterKeyOpenNothing: there is no way from the one and the other to the
// key of any plan; the folder of tenants' keys is what is missing.
func TestACopyOfTheDataAndTheMasterKeyOpenNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.ring(t, oldMaster, t.TempDir())
	at := seal.Place{Tenant: "t", Plan: "p", Action: "1", Field: "input.card"}
	key, err := k.Issue(t.Context(), "agent", "p")
	if err != nil {
		t.Fatal(err)
	}
	document := seal.Seal(key, at, json.RawMessage(`"4000"`))
	store, own, err := k.opened(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for entry, err := range store.All(t.Context()) {
		var w wrapped
		if err != nil || json.Unmarshal(entry.Value, &w) != nil || w.ID != own.ID {
			t.Fatalf("%s: %v", entry.Value, err)
		}
		for _, under := range [][]byte{oldMaster, derive(oldMaster, "sagenbaum/master/v1 ask"),
			derive(oldMaster, "sagenbaum/master/v1 id")} {
			for _, id := range []string{"", own.ID} {
				if _, err := unwrap(under, w.Key, k.boundPlan("p", "agent", id)); err == nil {
					t.Error("the master key opens the key of a plan")
				}
			}
			_, _, err := seal.Open(document, func(v seal.Value) (json.RawMessage, error) {
				return v.Open(seal.Key(under), "t")
			})
			if !errors.Is(err, seal.ErrForged) {
				t.Errorf("the master key opens a sealed value: %v", err)
			}
		}
	}
	if err := k.Folder.Destroy("t"); err != nil {
		t.Fatal(err)
	}
	k.Erase()
	if _, _, err := k.Open(t.Context(), document, []string{"p"}, nil); !errors.Is(err, ErrTenantErased) || !Gone(err) {
		t.Errorf("after the erasure: %v", err)
	}
	s.all = nil
	late := s.ring(t, oldMaster, k.Folder.Dir())
	if _, _, err := late.Open(t.Context(), document, []string{"p"}, nil); !errors.Is(err, ErrNoTenantKey) {
		t.Errorf("the next process: %v", err)
	}
}
