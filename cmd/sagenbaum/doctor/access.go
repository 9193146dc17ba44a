package doctor

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// examineAccess looks at who may do what: whether the server lets in without credentials,
// whether our own user may more than its role, and what programs of this machine show.
func examineAccess(ctx context.Context, c *cli.Client, s *cli.Settings) []Finding {
	all := programs("/proc")
	users := sync.OnceValues(func() (access.Answer, error) { return usersOf(ctx, s) })
	return []Finding{examineEntry(c, s), examineRole(ctx, c, s), judgeArguments(all),
		examineSeed(c, s, all, users), examineUsers(s, users)}
}

func roleOf(c *access.Credentials) access.Role {
	if c == nil {
		return ""
	}
	return c.Role
}

// examineEntry tries to get in without credentials.
func examineEntry(c *cli.Client, s *cli.Settings) Finding {
	const check = "entry"
	if strings.Contains(s.Server, "@") { // the URL has some
		return skipped(check, "", "not checked: the URL has a password")
	}
	conn, err := nats.Connect(s.Server, nats.Timeout(c.Timeout), nats.Name("sagenbaum doctor"))
	if err == nil {
		conn.Close()
		if s.Self == nil {
			return skipped(check, "serve without --open; elsewhere users with roles (docs/security.md)",
				"%s lets everyone in without credentials who can reach it", c.Server)
		}
		return warn(check, "serve without --open; elsewhere users with roles (docs/security.md)",
			"%s lets everyone in without credentials who can reach it", c.Server)
	}
	return ok(check, "no one gets in without credentials")
}

// refusalWait is how long a refusal that has arrived takes at most until it is told.
const refusalWait = 500 * time.Millisecond

// examineRole tries what no client of a tenant may: JetStream, the servers themselves, and
// listening to everything.
func examineRole(ctx context.Context, c *cli.Client, s *cli.Settings) Finding {
	const check = "role"
	if s.Self == nil || s.Self.Role == "" {
		return skipped(check, "", "not checked: the credentials name no role")
	}
	if s.Self.Role == access.Host || s.Self.Role == access.Provisioner {
		return skipped(check, "", "not checked: role %s has JetStream", s.Self.Role)
	}
	var wide []string
	for _, subject := range []string{"$JS.API.INFO", "$SYS.REQ.SERVER.PING"} {
		within, cancel := c.Within(ctx)
		_, err := c.Conn.RequestWithContext(within, subject, nil)
		cancel()
		if err == nil {
			wide = append(wide, "publish "+subject)
		}
	}
	before := c.Denied.Swap(nil)
	if sub, err := c.Conn.SubscribeSync(">"); err == nil {
		_ = c.Conn.Flush() // a refusal comes first, and is told to us a little later
		for until := time.Now().Add(refusalWait); c.Denied.Load() == nil; {
			if time.Now().After(until) {
				wide = append(wide, "subscribe >")
				break
			}
			time.Sleep(refusalWait / 100)
		}
		_ = sub.Unsubscribe()
	}
	c.Denied.Store(before)
	if len(wide) > 0 {
		return warn(check, exportNext,
			"this user may do more than role %s: %s", s.Self.Role, strings.Join(wide, ", "))
	}
	return ok(check, "user %s may do what the table gives to role %s, as far as was tried",
		s.Self.Name, s.Self.Role)
}
