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
		examineSeed(c, s, all, users), examineUsers(s, users), examineForgotten(ctx, s)}
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
	if refused, err := refusedAll(ctx, c); err != nil {
		return problem(check, err)
	} else if !refused {
		wide = append(wide, "subscribe >")
	}
	if len(wide) > 0 {
		return warn(check, exportNext,
			"this user may do more than role %s: %s", s.Self.Role, strings.Join(wide, ", "))
	}
	return ok(check, "user %s may do what the table gives to role %s, as far as was tried",
		s.Self.Name, s.Self.Role)
}

// refusedAll reports whether the server refuses to let us listen to everything.
func refusedAll(ctx context.Context, c *cli.Client) (refused bool, err error) {
	before, earlier := c.Denied.Load(), c.Conn.LastError()
	sub, err := c.Conn.SubscribeSync(">")
	if err != nil {
		return false, c.Explain("the permissions", err)
	}
	err = c.Conn.FlushTimeout(c.Timeout)
	_ = sub.Unsubscribe()
	if err != nil {
		return false, c.Explain("the permissions", err)
	}
	// A refusal comes before the answer to the flush, and is the last error from then on. We are
	// told of it a little later, and then forget it: it is no one else's.
	all := func(text string) bool { return strings.Contains(text, `Subscription to ">"`) }
	last := c.Conn.LastError()
	refused = last != nil && last != earlier && all(last.Error())
	for refused {
		if told := c.Denied.Load(); told != nil && all(*told) || !cli.Pause(ctx, time.Millisecond) {
			break
		}
	}
	c.Denied.Store(before)
	return refused, nil
}
