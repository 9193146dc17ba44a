package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

func TestWhichServersAreSupported(t *testing.T) {
	for version, want := range map[string]bool{
		"2.10.29": false, "2.11.99": false, "2.12.0": false, "2.12.11": false, "2.12.12-RC.1": false, "2.12.12": true,
		"2.12.14-fips": true, "2.12.8-fips": false, "2.13.0": false, "2.13.9": false, "2.14.0": false, "2.14.2": false,
		"2.14.3-RC.2": false, "2.14.3": true, "v2.14.9": true, "2.15.0-preview.1": false, "2.15.0": true,
		"2.15.2": true, "2.16.0-RC.1": true, "3.0.0": true, "": false, "2.15": false, "two": false, "2.x.3": false,
	} {
		if got := jetstream.Supported(version); got != want {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
	}
}

// configured runs a server from a configuration as an operator writes it.
func configured(t *testing.T, text string, connect ...nats.Option) *nats.Conn {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, text, filepath.Join(dir, "store")), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := natsd.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return runNATS(t, options, connect...)
}

func TestAServerThatIsNotStrictIsRefused(t *testing.T) {
	ctx := within(t, 60*time.Second)
	for text, want := range map[string]string{
		`jetstream { store_dir: %q }`:                "",
		`jetstream { store_dir: %q, strict: true }`:  "",
		`jetstream { store_dir: %q, strict: false }`: "strict",
	} {
		conn := configured(t, text)
		for _, there := range []bool{false, true} { // the stream
			_, err := jetstream.Open(ctx, jetstream.Config{Conn: conn, Tenant: "t", AcceptLossyBroker: true})
			if want == "" && err != nil || want != "" && !isRefused(err, want) {
				t.Errorf("%s, stream there %v: %v", text, there, err)
			}
			if want != "" && err != nil && !strings.Contains(err.Error(), `"strict: false"`) {
				t.Errorf("it does not say what is needed: %v", err)
			}
			stream := []byte(`{"name":"SAGA_t","subjects":["saga.t.>"]}`)
			if _, err := conn.Request("$JS.API.STREAM.CREATE.SAGA_t", stream, testenv.Patience); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAServerIsAskedOnceWhetherItIsStrict: a strict one warns of the question in its log, and
// counts it as an error. One that is not strict is asked again, and the embedded one never.
func TestAServerIsAskedOnceWhetherItIsStrict(t *testing.T) {
	ctx := within(t, 60*time.Second)
	for text, want := range map[string]uint64{
		`jetstream { store_dir: %q }`: 1, `jetstream { store_dir: %q, strict: false }`: 0,
	} {
		conn := configured(t, text)
		api, err := js.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		stream := js.StreamConfig{Name: "SAGA_t", Subjects: []string{"saga.t.>"}}
		if _, err := api.CreateStream(ctx, stream); err != nil {
			t.Fatal(err)
		}
		errs := func() uint64 {
			account, err := api.AccountInfo(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return account.API.Errors
		}
		before := errs()
		var servers jetstream.StrictServers
		if err := servers.Check(ctx, conn, "t", conn.ConnectedServerId(), ""); err != nil || errs() != before {
			t.Errorf("the embedded server was asked: %d errors, %v", errs()-before, err)
		}
		for range 3 {
			if err := servers.Check(ctx, conn, "t", "", "n1"); want == 0 && !isRefused(err, "strict") || want > 0 && err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
		if got := errs() - before; got != want {
			t.Errorf("%s: asked %d times, want %d", text, got, want)
		}
		if err := servers.Check(ctx, conn, "t", "", "n2"); want > 0 && (err != nil || errs() != before+2) {
			t.Errorf("another server leads the stream, and was not asked: %v", err)
		}
	}
}

// clusterOfAccounts is one server of three, each with a line of its own in the block of
// JetStream, and with a system account.
const clusterOfAccounts = `server_name: n%d
host: 127.0.0.1
port: -1
jetstream { store_dir: %q, sync_interval: always %s }
cluster { name: c, host: 127.0.0.1, port: %d, routes: [ %s ] }
accounts {
  T { jetstream: enabled, users: [ { user: tenant, password: x } ] }
  SYS { users: [ { user: sys, password: x } ] }
}
system_account: SYS
`

// TestEveryServerOfAClusterIsAsked: one that does not lead anything now may lead tomorrow.
func TestEveryServerOfAClusterIsAsked(t *testing.T) {
	ctx := within(t, 90*time.Second)
	for odd, want := range map[string]string{"": "", ", strict: false": "strict"} {
		conn, system := clusterWith(t, ctx, odd)
		for _, lossy := range []bool{false, true} {
			var err error
			until(t, ctx, "open, or be refused", func() error {
				opening, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				config := jetstream.Config{Conn: conn, Tenant: "t", System: system, AcceptLossyBroker: lossy}
				_, err = jetstream.Open(opening, config)
				if refused := (*ledger.Refused)(nil); errors.As(err, &refused) {
					return nil
				}
				return err
			})
			if want == "" && err != nil || want != "" && !isRefused(err, want) {
				t.Errorf("one of three has %q, lossy %v: %v", odd, lossy, err)
			}
			if want != "" && err != nil && !strings.Contains(err.Error(), "n2") {
				t.Errorf("it does not say which server: %v", err)
			}
		}
	}
}

// clusterWith starts three servers, the last of them with a setting of its own.
func clusterWith(t *testing.T, ctx context.Context, odd string) (conn, system *nats.Conn) {
	t.Helper()
	ports, err := testenv.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for _, port := range ports {
		routes = append(routes, fmt.Sprintf(`"nats://127.0.0.1:%d"`, port))
	}
	var url string
	for i, port := range ports {
		own := ""
		if i == len(ports)-1 {
			own = odd
		}
		dir := t.TempDir()
		file := filepath.Join(dir, "nats.conf")
		text := fmt.Appendf(nil, clusterOfAccounts, i, filepath.Join(dir, "store"), own, port,
			strings.Join(routes, ", "))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		options, err := natsd.ProcessConfigFile(file)
		if err != nil {
			t.Fatal(err)
		}
		options.NoSigs, options.NoLog = true, true
		server, err := natsd.NewServer(options)
		if err != nil {
			t.Fatal(err)
		}
		server.Start()
		t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
		if url = server.ClientURL(); !server.ReadyForConnections(20 * time.Second) {
			t.Fatal("not ready")
		}
	}
	as := func(user string) *nats.Conn {
		conn, err := nats.Connect(url, nats.UserInfo(user, "x"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		return conn
	}
	return as("tenant"), as("sys")
}
