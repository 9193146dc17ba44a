package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// admin returns the stream API as an operator with all rights has it.
func admin(t *testing.T, conn *nats.Conn) js.JetStream {
	t.Helper()
	client, err := js.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestStreamRefusesDeleteAndPurgeAndCannotBeLoosened(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := connect(t, server)
	store := openOn(t, server, conn)
	mustAppend(t, ctx, store, commit("p", "one"))
	stream, err := admin(t, conn).Stream(ctx, jetstream.StreamName("t"))
	if err != nil {
		t.Fatal(err)
	}
	loose := stream.CachedInfo().Config
	loose.DenyDelete, loose.DenyPurge = false, false
	_, update := admin(t, conn).UpdateStream(ctx, loose)
	for verb, err := range map[string]error{
		"delete": stream.DeleteMsg(ctx, 1), "secure delete": stream.SecureDeleteMsg(ctx, 1), "purge": stream.Purge(ctx),
		"update": update,
	} {
		if err == nil || !strings.Contains(err.Error(), "err_code=1005") &&
			!strings.Contains(err.Error(), "err_code=10110") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	rollup := nats.NewMsg("saga.t.agent.a1.p")
	rollup.Header.Set("Nats-Rollup", "all")
	if reply, err := conn.RequestMsg(rollup, testenv.Patience); err != nil ||
		!strings.Contains(string(reply.Data), "error") {
		t.Errorf("rollup: %v", err)
	}
	if m := take(t, ctx, store, 1, 1)[0]; string(m.Data) != "one" {
		t.Fatalf("read %+v", m)
	}
}

func TestOpenRefusesAStreamThatContradictsALedger(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := connect(t, server)
	openOn(t, server, conn)
	client := admin(t, conn)
	good, err := client.Stream(ctx, jetstream.StreamName("t"))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		field  string
		change func(*js.StreamConfig)
	}{
		{"subjects", func(c *js.StreamConfig) { c.Subjects = append(c.Subjects, "more."+c.Name) }},
		{"storage", func(c *js.StreamConfig) { c.Storage = js.MemoryStorage }},
		{"retention", func(c *js.StreamConfig) { c.Retention = js.InterestPolicy }},
		{"discard", func(c *js.StreamConfig) { c.Discard = js.DiscardOld }},
		{"deny_delete", func(c *js.StreamConfig) { c.DenyDelete = false }},
		{"deny_purge", func(c *js.StreamConfig) { c.DenyPurge = false }},
		{"max_age", func(c *js.StreamConfig) { c.MaxAge = time.Hour }},
		{"max_msgs", func(c *js.StreamConfig) { c.MaxMsgs = 1000 }},
		{"max_msgs_per_subject", func(c *js.StreamConfig) { c.MaxMsgsPerSubject = 1000 }},
		{"max_msg_size", func(c *js.StreamConfig) { c.MaxMsgSize = 1000 }},
		{"allow_atomic", func(c *js.StreamConfig) { c.AllowAtomicPublish = true }},
		{"allow_batched", func(c *js.StreamConfig) { c.AllowBatchPublish = true }},
		{"allow_msg_ttl", func(c *js.StreamConfig) { c.AllowMsgTTL = true }},
		{"allow_direct", func(c *js.StreamConfig) { c.AllowDirect = false }},
		{"no_ack", func(c *js.StreamConfig) { c.NoAck = true }},
		{"persist_mode", func(c *js.StreamConfig) { c.PersistMode = js.AsyncPersistMode }},
		{"subject_transform", func(c *js.StreamConfig) {
			c.SubjectTransform = &js.SubjectTransformConfig{Source: ">", Destination: "x.>"}
		}},
	} {
		tenant := fmt.Sprintf("c%d", i)
		config := good.CachedInfo().Config
		config.Name, config.Subjects, config.Metadata = jetstream.StreamName(tenant), []string{"saga." + tenant + ".>"},
			nil
		c.change(&config)
		if _, err := client.CreateStream(ctx, config); err != nil {
			t.Errorf("%s: cannot make the stream: %v", c.field, err)
			continue
		}
		before, err := client.Stream(ctx, config.Name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = jetstream.Open(ctx, jetstream.Config{Conn: conn, Tenant: tenant, DurableServer: server.DurableID()})
		if !isRefused(err, "stream."+c.field) {
			t.Errorf("%s: %v", c.field, err)
		}
		after, err := client.Stream(ctx, config.Name)
		if err != nil || !reflect.DeepEqual(before.CachedInfo().Config, after.CachedInfo().Config) {
			t.Errorf("%s: Open changed the stream (%v)", c.field, err)
		}
	}
	for field, cfg := range map[string]jetstream.Config{
		"stream.max_bytes": {MaxBytes: 1 << 20}, "stream.num_replicas": {Replicas: 3}, "config": {Replicas: 9},
		"tenant": {Tenant: "a.b"},
	} {
		cfg.Conn, cfg.DurableServer = conn, server.DurableID()
		if cfg.Tenant == "" {
			cfg.Tenant = "t"
		}
		if _, err := jetstream.Open(ctx, cfg); !isRefused(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestAHoleInTheStreamHaltsReaders(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	// Without the deny flags nothing but the reader's own check is left, and Open
	// refuses such a stream. So the store is opened on a good one, and the server
	// is then restarted with another folder.
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := patient(t, server)
	port := portOf(t, conn)
	store := openOn(t, server, conn)
	good, err := admin(t, conn).Stream(ctx, jetstream.StreamName("t"))
	if err != nil {
		t.Fatal(err)
	}
	config := good.CachedInfo().Config
	config.DenyDelete, config.Metadata = false, nil
	server.Close()
	server = startServer(t, embedded.Config{Dir: t.TempDir(), Port: port})
	direct := connect(t, server)
	stream, err := admin(t, direct).CreateStream(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "reconnect", func() error {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := store.Head(short)
		return err
	})
	for i := range 9 {
		mustAppend(t, ctx, store, commit("p", fmt.Sprint(i)))
	}
	next, stop := iter.Pull2(store.Read(ctx, 1))
	defer stop()
	if m, err, _ := next(); err != nil || m.Sequence != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	if err := stream.DeleteMsg(ctx, 5); err != nil {
		t.Fatal(err)
	}
	if h := headOf(t, store); h.Deleted != 1 || h.Last != 9 {
		t.Fatalf("head %+v", h)
	}
	if err := readErr(ctx, store, 1); !isHalted(err, "G1") {
		t.Errorf("read: %v", err)
	}
	if err := readErr(ctx, store, 7); !isHalted(err, "G1") {
		t.Errorf("read behind the hole: %v", err)
	}
	if _, err := store.Get(ctx, 5); !isHalted(err, "G1") {
		t.Errorf("get: %v", err)
	}
	if m, err := store.Get(ctx, 6); err != nil || m.Sequence != 6 {
		t.Errorf("get behind the hole: %+v, %v", m, err)
	}
	if _, err := jetstream.Open(ctx, jetstream.Config{Conn: conn, Tenant: "t",
		DurableServer: server.DurableID()}); !isRefused(err, "stream.deny_delete") {
		t.Errorf("open: %v", err)
	}
	if err := stream.DeleteMsg(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(ctx, 1); !isHalted(err, "G1") {
		t.Errorf("get the lost first: %v", err)
	}
}

func TestAFullStreamTakesNothingAndKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := connect(t, server)
	store, err := jetstream.Open(ctx, jetstream.Config{Conn: conn, Tenant: "t", MaxBytes: 200 << 10,
		DurableServer: server.DurableID()})
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for {
		_, err := store.Append(ctx, commit("p", strings.Repeat("x", 50<<10)))
		if errors.Is(err, ledger.ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		stored++
	}
	if h := headOf(t, store); stored == 0 || h.First != 1 || h.Last != uint64(stored) {
		t.Fatalf("%d stored, head %+v", stored, h)
	}
	take(t, ctx, store, 1, stored)
}

func TestAppendOverTheServersOwnCapIsRefused(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := connect(t, server)
	openOn(t, server, conn)
	// A foreign client that does not look at the size gets the server's 10054.
	_, err := admin(t, conn).Publish(ctx, "saga.t.agent.a1.p", make([]byte, jetstream.MessageSizeMax+1))
	var api *js.APIError
	if !errors.As(err, &api) || api.ErrorCode != 10054 {
		t.Fatalf("%v", err)
	}
}

func TestAppendWithoutAStreamIsBusyAndNotStored(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := connect(t, server)
	appender, err := jetstream.Attach(conn, "t")
	if err != nil {
		t.Fatal(err)
	}
	a := commit("p", "early")
	if _, err := appender.Append(ctx, a); !errors.Is(err, jetstream.ErrNoStream) || !errors.Is(err, ledger.ErrBusy) {
		t.Fatalf("%v", err)
	}
	store := openOn(t, server, conn)
	if h := headOf(t, store); h.Last != 0 {
		t.Fatalf("head %+v", h)
	}
	if seq, err := appender.Append(ctx, a); err != nil || seq != 1 {
		t.Fatalf("%d, %v", seq, err)
	}
}

func TestServersThatCannotHoldALedgerAreRefused(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	plain := runNATS(t, &natsd.Options{})
	if _, err := jetstream.Open(ctx, jetstream.Config{Conn: plain, Tenant: "t",
		AcceptLossyBroker: true}); !isRefused(err, "server") || !strings.Contains(err.Error(), "JetStream is off") {
		t.Errorf("JetStream off: %v", err)
	}
	small := runNATS(t, &natsd.Options{JetStream: true, StoreDir: t.TempDir(), MaxPayload: 1000})
	if _, err := jetstream.Open(ctx, jetstream.Config{Conn: small, Tenant: "t",
		AcceptLossyBroker: true}); !isRefused(err, "max_payload") {
		t.Errorf("small payloads: %v", err)
	}
	old, err := nats.Connect("", nats.SetCustomDialer(oldServer{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(old.Close)
	if _, err := jetstream.Open(ctx, jetstream.Config{Conn: old, Tenant: "t"}); !isRefused(err, "server") ||
		!strings.Contains(err.Error(), jetstream.ServerVersionMin) {
		t.Errorf("old server: %v", err)
	}
}

func TestAServerThatIsNotKnownToSyncIsRefusedUnlessAccepted(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	external := runNATS(t, &natsd.Options{JetStream: true, StoreDir: t.TempDir(), SyncAlways: true})
	_, err := jetstream.Open(ctx, jetstream.Config{Conn: external, Tenant: "t"})
	if !isRefused(err, "sync_interval") || !strings.Contains(err.Error(), "--accept-lossy-broker") {
		t.Errorf("unknown: %v", err)
	}
	if _, err := jetstream.Open(ctx, jetstream.Config{Conn: external, Tenant: "t",
		AcceptLossyBroker: true}); err != nil {
		t.Errorf("accepted: %v", err)
	}
	lossy := startServer(t, embedded.Config{Dir: t.TempDir(), NoSync: true})
	if _, err := jetstream.Open(ctx, jetstream.Config{Conn: connect(t, lossy), Tenant: "t",
		DurableServer: lossy.DurableID()}); !isRefused(err, "sync_interval") {
		t.Errorf("embedded without sync: %v", err)
	}
	for _, always := range []bool{true, false} {
		tenants, system := natsd.NewAccount("TENANTS"), natsd.NewAccount("SYS")
		options := &natsd.Options{
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: always, Accounts: []*natsd.Account{tenants, system},
			SystemAccount: "SYS",
			Users: []*natsd.User{{Username: "tenant", Password: "x", Account: tenants},
				{Username: "sys", Password: "x", Account: system}},
		}
		sys := runNATS(t, options, nats.UserInfo("sys", "x"))
		conn, err := nats.Connect(sys.ConnectedUrl(), nats.UserInfo("tenant", "x"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		_, err = jetstream.Open(ctx, jetstream.Config{Conn: conn, Tenant: "t", System: sys})
		// The account has no JetStream, which is seen after the server said that it syncs.
		if want := map[bool]string{true: "account", false: "sync_interval"}[always]; !isRefused(err, want) {
			t.Errorf("sync always %v: %v", always, err)
		}
	}
}

func TestAnAgentUserWritesItsOwnSubjectsOnly(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	users := testenv.Users(t, access.User{Name: "a1", Role: access.Agent, Tenant: "t"})
	server := startServer(t, embedded.Config{Dir: t.TempDir(), Users: users.Directory})
	store := openOn(t, server, connect(t, server))
	if _, err := nats.Connect(server.URL()); err == nil {
		t.Fatal("connected without credentials")
	}
	conn, err := nats.Connect(server.URL(), append(users.As("a1"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	agent, err := jetstream.Attach(conn, "t")
	if err != nil {
		t.Fatal(err)
	}
	const unanswered = time.Second // what is denied has no answer
	if seq, err := agent.Append(ctx, commit("p", "own")); err != nil || seq != 1 {
		t.Fatalf("own subject: %d, %v", seq, err)
	}
	for _, subject := range []string{"saga.t.agent.a2.p", "saga.t.executor", "saga.t.operator.root"} {
		a := commit("p", "not own")
		a.Subject = subject
		short, cancel := context.WithTimeout(ctx, unanswered)
		_, err := agent.Append(short, a)
		cancel()
		if !errors.Is(err, jetstream.ErrDenied) || !strings.Contains(err.Error(), "may not publish") {
			t.Errorf("%s: %v", subject, err)
		}
		if !jetstream.Denied(conn, subject, nil) || jetstream.Denied(conn, subject, conn.LastError()) {
			t.Errorf("%s: an error of before is taken for another one", subject)
		}
	}
	if _, err := conn.Request("$JS.API.STREAM.INFO."+jetstream.StreamName("t"), nil, unanswered); err == nil {
		t.Error("the agent may ask the stream API")
	}
	if h := headOf(t, store); h.Last != 1 {
		t.Fatalf("head %+v", h)
	}
}

// TestAStreamWithReplicasIsNotCompressed, also one that an earlier version has made: see compression.
func TestAStreamWithReplicasIsNotCompressed(t *testing.T) {
	openCluster(t)
	c := sharedCluster(t)
	conn, err := nats.Connect(c.servers[0].ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, err := js.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, testenv.Patience)
	compressed := func() (bool, js.StreamConfig) {
		t.Helper()
		stream, err := client.Stream(ctx, jetstream.StreamName("t"))
		if err != nil {
			t.Fatal(err)
		}
		config := stream.CachedInfo().Config
		return config.Compression != js.NoCompression, config
	}
	is, config := compressed()
	if is {
		t.Error("a stream that is made is compressed")
	}
	config.Compression = js.S2Compression
	if _, err := client.UpdateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "open", func() error {
		_, err := jetstream.Open(ctx, jetstream.Config{Conn: conn, Tenant: "t", Replicas: 3, System: c.system})
		return err
	})
	if is, _ := compressed(); is {
		t.Error("a stream of an earlier version stays compressed")
	}
}
