package embedded_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

func isRefused(err error, field string) bool {
	var refused *ledger.Refused
	return errors.As(err, &refused) && refused.Field == field
}

func start(t *testing.T, cfg embedded.Config) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// certificate writes a self-signed certificate for this machine.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func TestOnlyLoopbackIsServedWithoutTLSAndCredentials(t *testing.T) {
	cert, key := certificate(t)
	users := testenv.Users(t, access.User{Name: "operator", Role: access.Operator, Tenant: "t"})
	strangers := testenv.Users(t, access.User{Name: "operator", Role: access.Operator, Tenant: "t"})
	for _, host := range []string{"0.0.0.0", "::", "192.0.2.1", "example.com"} {
		for _, cfg := range []embedded.Config{{}, {TLSCert: cert, TLSKey: key}, {Users: users.Directory}} {
			cfg.Dir, cfg.Host, cfg.Port = t.TempDir(), host, -1
			server, err := embedded.Start(cfg)
			if !isRefused(err, "host") {
				t.Errorf("%s: %v", host, err)
			}
			if err == nil {
				server.Close()
			}
		}
	}
	for _, host := range []string{"", "127.0.0.1", "localhost", "127.0.0.2", "::ffff:127.0.0.1"} {
		server := start(t, embedded.Config{Dir: t.TempDir(), Host: host, Port: -1})
		server.Close()
	}
	open := start(t, embedded.Config{Dir: t.TempDir(), Host: "0.0.0.0", Port: -1, TLSCert: cert, TLSKey: key,
		Users: users.Directory})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(open.URL(), "tls://"), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	url := "nats://127.0.0.1:" + port
	conn, err := nats.Connect(url, append(users.As("operator"), nats.RootCAs(cert))...)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := conn.TLSConnectionState(); err != nil || state.Version < tls.VersionTLS12 {
		t.Fatalf("TLS version %x, %v", state.Version, err)
	}
	conn.Close()
	for what, options := range map[string][]nats.Option{
		"no credentials": {nats.RootCAs(cert)}, "another's key": append(strangers.As("operator"), nats.RootCAs(cert)),
		"a password": {nats.RootCAs(cert), nats.UserInfo("operator", "y")}, "unknown authority": users.As("operator"),
	} {
		if _, err := nats.Connect(url, options...); err == nil {
			t.Errorf("connected with %s", what)
		}
	}
	inside, err := open.Connect()
	if err != nil {
		t.Fatalf("in process: %v", err)
	}
	inside.Close()
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	cert, key := certificate(t)
	for field, cfg := range map[string]embedded.Config{
		"dir": {}, "port": {Dir: "x", Port: 70000}, "max_store": {Dir: "x", MaxStore: -1},
		"tls": {Dir: "x", TLSCert: cert},
	} {
		if _, err := embedded.Start(cfg); !isRefused(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := embedded.Start(embedded.Config{Dir: t.TempDir(), TLSCert: key, TLSKey: cert}); !isRefused(err, "tls") {
		t.Errorf("swapped files: %v", err)
	}
}

func TestAFolderBelongsToOneServer(t *testing.T) {
	dir := t.TempDir()
	server := start(t, embedded.Config{Dir: dir, Port: -1})
	if _, err := embedded.Start(embedded.Config{Dir: dir, Port: -1}); err == nil ||
		!strings.Contains(err.Error(), "another server uses it") {
		t.Fatalf("%v", err)
	}
	server.Close()
	server.Close()
	if server.Running() {
		t.Fatal("runs after Close")
	}
	start(t, embedded.Config{Dir: dir, Port: -1})
}

func TestATakenPortIsSaidSoAndLeavesTheFolderFree(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir, port := t.TempDir(), listener.Addr().(*net.TCPAddr).Port
	if _, err := embedded.Start(embedded.Config{Dir: dir, Port: port}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("%v", err)
	}
	start(t, embedded.Config{Dir: dir, Port: -1})
}

func TestAFolderThatCannotBeUsedIsSaidSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Start(embedded.Config{Dir: filepath.Join(file, "below"), Port: -1}); err == nil ||
		!strings.Contains(err.Error(), "folder") {
		t.Fatalf("%v", err)
	}
	// The server itself cannot use a folder in which its own place is a file.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Start(embedded.Config{Dir: dir, Port: -1}); err == nil ||
		!strings.HasPrefix(err.Error(), "cannot start NATS: ") {
		t.Fatalf("%v", err)
	}
}

func TestDurableIDTellsWhetherTheServerSyncs(t *testing.T) {
	safe := start(t, embedded.Config{Dir: t.TempDir(), Port: -1})
	conn, err := safe.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if safe.DurableID() == "" || safe.DurableID() != conn.ConnectedServerId() {
		t.Fatalf("%q, connected to %q", safe.DurableID(), conn.ConnectedServerId())
	}
	if fast := start(t, embedded.Config{Dir: t.TempDir(), Port: -1, NoSync: true}); fast.DurableID() != "" {
		t.Fatal("a server that does not sync calls itself durable")
	}
	if err := safe.Probe(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// What lies beside the streams of the server says nothing of whether it can store: not
// what nats-server leaves when it is killed at its start.
func TestWhatLiesBesideTheStreamsIsNotMute(t *testing.T) {
	dir := t.TempDir()
	server := start(t, embedded.Config{Dir: dir, Port: -1})
	if err := server.Probe(t.Context()); err != nil {
		t.Errorf("without a stream: %v", err)
	}
	conn, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Request("$JS.API.STREAM.CREATE.S", []byte(`{"name":"S","subjects":["s.>"]}`),
		testenv.Patience); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "jetstream", "_test_1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "jetstream", "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := server.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "jetstream", "$G", "streams", "NONE"), 0o700); err != nil {
		t.Fatal(err)
	}
	server.TryProbe(3)
	if err := server.Probe(t.Context()); err == nil {
		t.Error("a stream that was not recovered is not noticed")
	}
}

// A stream that is being made, as by a repair, is for a moment one that the server's
// health page calls not recovered. Whoever takes that for mute ends the repair.
func TestAStreamThatIsBeingMadeIsNotMute(t *testing.T) {
	server := start(t, embedded.Config{Dir: t.TempDir(), Port: -1})
	conn, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A request is answered without an error. The server removes a deleted stream in the background,
	// and what a stream of the same name, or without another one beside it, needs meanwhile: so each
	// has a name of its own, and one stays.
	request := func(verb, name, body string) error {
		answer, err := conn.Request("$JS.API.STREAM."+verb+"."+name, []byte(body), testenv.Patience)
		if err == nil && bytes.Contains(answer.Data, []byte(`"error"`)) {
			err = errors.New(string(answer.Data))
		}
		return err
	}
	if err := request("CREATE", "STAYS", `{"name":"STAYS","subjects":["stays"]}`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { // ends with its last stream
		var err error
		for n := 0; n < 60 && err == nil; n++ {
			name := fmt.Sprint("S", n)
			if err = request("CREATE", name, fmt.Sprintf(`{"name":%q,"subjects":["s.>"]}`, name)); err == nil {
				err = request("DELETE", name, "")
			}
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
			if err := server.Probe(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// asking is a context that calls looked each time somebody waits for its end.
type asking struct {
	context.Context
	looked func()
}

func (a asking) Done() <-chan struct{} {
	a.looked()
	return a.Context.Done()
}

// TestProbeWaitsForAStreamThatIsBeingMadeOrDeleted: it has a folder and no stream for a
// moment, which is no reason to start the server again; one that stays so is.
func TestProbeWaitsForAStreamThatIsBeingMadeOrDeleted(t *testing.T) {
	dir := t.TempDir()
	s, err := embedded.Start(embedded.Config{Dir: dir, Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if conn, err := s.Connect(); err != nil {
		t.Fatal(err)
	} else {
		defer conn.Close()
		if _, err := conn.Request("$JS.API.STREAM.CREATE.S", []byte(`{"name":"S","subjects":["s"],"storage":"file"}`),
			testenv.Patience); err != nil {
			t.Fatal(err)
		}
	}
	folders, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("%v, %v", folders, err)
	}
	ghost := filepath.Join(folders[0], ".gone")
	if err := os.Mkdir(ghost, 0o700); err != nil {
		t.Fatal(err)
	}
	s.TryProbe(3)
	if err := s.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "could not be recovered") {
		t.Errorf("a folder that stays: %v", err)
	}
	// As long as something is made or deleted beside it, none of that has failed.
	changes := 0
	err = s.Probe(asking{t.Context(), func() {
		if changes++; changes == 8 {
			if err := os.Remove(ghost); err != nil {
				t.Error(err)
			}
			return
		}
		if err := os.WriteFile(filepath.Join(ghost, "x"), nil, 0o600); err != nil {
			t.Error(err)
		}
		if err := os.Remove(filepath.Join(ghost, "x")); err != nil {
			t.Error(err)
		}
	}})
	if err != nil || changes < 8 {
		t.Errorf("a folder in which something goes on: %v after %d waits", err, changes)
	}
	if err := os.Mkdir(ghost, 0o700); err != nil {
		t.Fatal(err)
	}
	waits := 0
	err = s.Probe(asking{t.Context(), func() {
		if waits++; waits == 2 {
			err := os.Remove(ghost)
			if err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil || waits < 2 {
		t.Errorf("a folder that goes away: %v after %d waits", err, waits)
	}
}

// A server that stands in has no streams and leaves its folder alone: an append is busy, and
// stored once a real one has taken its place on the same port.
func TestAServerWithoutStreamsStandsIn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	standIn, err := embedded.Start(embedded.Config{Dir: dir, Port: -1, NoStreams: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standIn.Close)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
	if standIn.DurableID() != "" {
		t.Error("it says that it syncs what it does not store")
	}
	conn, err := nats.Connect(standIn.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	appender, err := jetstream.Attach(conn, "t")
	if err != nil {
		t.Fatal(err)
	}
	a := ledger.Append{Subject: "saga.t.agent.a1.p", ID: jetstream.NewID(), Data: []byte("x")}
	if _, err := appender.Append(t.Context(), a); !errors.Is(err, jetstream.ErrNoStream) {
		t.Errorf("an append without streams: %v", err)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(standIn.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	standIn.Close()
	if err := embedded.CheckFolder(dir); err != nil {
		t.Errorf("a folder that can be written: %v", err)
	}
	server, err := embedded.Start(embedded.Config{Dir: dir, Port: number})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	if err := embedded.CheckFolder(dir); err == nil || !strings.Contains(err.Error(), "another server uses it") {
		t.Errorf("a folder that a server uses: %v", err)
	}
	own, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if _, err := jetstream.Open(ctx, jetstream.Config{Conn: own, Tenant: "t",
		DurableServer: server.DurableID()}); err != nil {
		t.Fatal(err)
	}
	for err = ledger.ErrBusy; (errors.Is(err, ledger.ErrBusy) || errors.Is(err, ledger.ErrInDoubt)) &&
		ctx.Err() == nil; {
		_, err = appender.Append(ctx, a)
	}
	if err != nil {
		t.Errorf("with streams: %v", err)
	}
}
