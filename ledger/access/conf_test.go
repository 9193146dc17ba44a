package access_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// outside are the users of servers that run elsewhere, and one that may do everything in the
// hub, for the eyes of the test.
func outside() []access.User {
	return castWithout(access.Local, access.Door, access.Callout)
}

// runConf runs a real server with a configuration.
func runConf(t *testing.T, text string) *natsd.Server {
	t.Helper()
	return runFile(t, confFile(t, text))
}

func confFile(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "nats.conf")
	text = "host: 127.0.0.1\nport: -1\njetstream { store_dir: " + strconv.Quote(t.TempDir()) + " }\n" + text
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func runFile(t *testing.T, file string) *natsd.Server {
	t.Helper()
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
	if !server.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return server
}

// TestAServerWithTheConfigurationHoldsTheMatrix: user export for nats.conf.
func TestAServerWithTheConfigurationHoldsTheMatrix(t *testing.T) {
	users := testenv.Users(t, outside()...)
	root := testenv.Users(t, access.User{Name: "root", Role: access.Host, Tenant: access.AllTenants})
	text, err := access.Configuration{Tenants: []string{"t1", "t2"}, Users: users.Users()}.Format(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server := runConf(t, strings.Replace(string(text), "users: [\n", "users: [ { nkey: "+root.Users()[0].Key+" }\n", 1))
	hold(t, site{
		users: outside(),
		hub:   func(t *testing.T) *nats.Conn { return dial(t, server.ClientURL(), root.As("root")...) },
		connect: func(t *testing.T, u access.User, options ...nats.Option) *nats.Conn {
			return dial(t, server.ClientURL(), append(users.As(u.Name), options...)...)
		},
	})
}
