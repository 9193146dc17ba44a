package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// Crew is the users of a test's server, with new keys.
type Crew struct {
	*access.Directory
	t   testing.TB
	dir string
}

// Users makes users for a server of a test.
func Users(t testing.TB, users ...access.User) *Crew {
	t.Helper()
	c := &Crew{t: t, dir: t.TempDir()}
	var err error
	if c.Directory, err = access.OpenDirectory(filepath.Join(c.dir, "users")); err != nil {
		t.Fatal(err)
	}
	for _, u := range users {
		var text []byte
		creds, err := access.NewCredentials(&u)
		if err == nil {
			text, err = creds.Format()
		}
		if err == nil {
			err = access.WriteSecret(c.File(u.Name), text)
		}
		if err == nil {
			err = c.Add(u)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// File is the file of a user's credentials.
func (c *Crew) File(name string) string { return filepath.Join(c.dir, name+".creds") }

// As is how a user connects.
func (c *Crew) As(name string) []nats.Option {
	c.t.Helper()
	options, _, err := connect.File(c.File(name), os.Getenv("SAGENBAUM_TENANT"))
	if err != nil {
		c.t.Fatal(err)
	}
	return options
}

// connects is how often a connection is tried that is not there: a machine on which many tests run
// at once may need longer than a client or a server waits for the first words of the other.
const connects = 20

// Connect connects a user, until the test ends.
func (c *Crew) Connect(url, name string, options ...nats.Option) *nats.Conn {
	c.t.Helper()
	options = append(c.As(name), options...)
	for try := 1; ; try++ {
		conn, err := nats.Connect(url, options...)
		if err == nil {
			c.t.Cleanup(conn.Close)
			return conn
		}
		if try == connects {
			c.t.Fatal(err)
		}
	}
}
