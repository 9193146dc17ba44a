package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// examineAccess looks at who may do what: whether the server lets in without credentials,
// whether our own user may more than its role, and what programs of this machine show.
func examineAccess(ctx context.Context, c *cli.Client, s *cli.Settings) []Finding {
	all := programs("/proc")
	return []Finding{examineEntry(c, s), examineRole(ctx, c, s), judgeArguments(all),
		examineSeed(ctx, c, s, all)}
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
		return warn(check, "have each server include what this prints, and no other user or permission, "+
			"and read it again, by nats-server --signal reload: sagenbaum user export --file users "+
			"(docs/guide/tenants.md)",
			"this user may do more than role %s: %s", s.Self.Role, strings.Join(wide, ", "))
	}
	return ok(check, "user %s may do what the table gives to role %s, as far as was tried",
		s.Self.Name, s.Self.Role)
}

// program is a process of this machine, as far as we may look at it.
type program struct {
	pid       string
	uid       string // of the user whose it is; empty: not known
	arguments string
	creds     string // of its environment
}

// uidLine is where the system says whose a program is.
var uidLine = regexp.MustCompile(`(?m)^Uid:\s+(\d+)`)

// programs are those that the system shows us; none where it has no such folder.
func programs(proc string) (all []program) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	if err != nil {
		return nil
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		p := program{pid: filepath.Base(filepath.Dir(file)),
			arguments: strings.ReplaceAll(string(line), "\x00", " ")}
		if status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status")); err == nil {
			if found := uidLine.FindSubmatch(status); found != nil {
				p.uid = string(found[1])
			}
		}
		if environ, err := os.ReadFile(filepath.Join(filepath.Dir(file), "environ")); err == nil {
			for _, entry := range strings.Split(string(environ), "\x00") {
				if creds, ok := strings.CutPrefix(entry, "SAGENBAUM_CREDS="); ok {
					p.creds = creds
				}
			}
		}
		all = append(all, p)
	}
	return all
}

// secretArgument is a password in a URL of NATS.
var secretArgument = regexp.MustCompile(`\b(nats|tls|wss?|nats-route)://[^\s/@:]+:[^\s/@]+@`)

// judgeArguments looks for passwords that everyone on the machine can see.
func judgeArguments(all []program) Finding {
	const check = "arguments"
	for _, p := range all {
		if secretArgument.MatchString(p.arguments) {
			return warn(check, "a file of credentials, or the environment "+
				"(SAGENBAUM_NATS, SAGENBAUM_CREDS)",
				"everyone on this machine can see a password in the arguments of process %s", p.pid)
		}
	}
	return ok(check, "no program shows a password of NATS in its arguments")
}

// examineSeed looks for agents of this server that can read the key of who runs it: they run as
// the same user. What other servers let in is nothing to this one, so the server is asked for its
// users, once there is a client to ask about.
func examineSeed(ctx context.Context, c *cli.Client, s *cli.Settings, all []program) Finding {
	const check = "seed"
	if role := roleOf(s.Self); role != access.Local {
		return skipped(check, "", "not checked: role %s has another key", role)
	}
	found := clientsBeside(all, s.Creds)
	if len(found) == 0 {
		return judgeSeed(found, s.Creds, nil)
	}
	var a access.Answer
	s.Everywhere(true) // users are asked for on a connection that is about no tenant
	err := s.With(func(c *cli.Client) error {
		return c.Call(ctx, api.ServerSubject(api.UserLs), access.Request{}, &a)
	})
	if f := (*cli.Failure)(nil); errors.As(err, &f) && f.Code == cli.ExitNotAllowed {
		return skipped(check, "", "not checked: %s does not say which agents are its own", c.Server)
	}
	if err != nil {
		return problem(check, err)
	}
	return judgeSeed(found, s.Creds, a.Users)
}

// clientBeside is a process with credentials that we can read, and that runs as the same user.
type clientBeside struct {
	pid         string
	credentials access.Credentials
}

// clientsBeside are those of any server, but for whoever has our own credentials. A superuser sees
// those of other users, too, which cannot read what is its own.
func clientsBeside(all []program, own string) (found []clientBeside) {
	uid := strconv.Itoa(os.Getuid())
	for _, p := range all {
		if p.creds == "" || p.creds == own || p.uid != "" && p.uid != uid {
			continue
		}
		if c, err := access.ReadCredentials(p.creds); err == nil {
			found = append(found, clientBeside{p.pid, c})
		}
	}
	return found
}

func judgeSeed(found []clientBeside, creds string, users []access.User) Finding {
	const check = "seed"
	agents := make(map[string]bool) // by key
	for _, u := range users {
		agents[u.Key] = u.Role == access.Agent
	}
	for _, a := range found {
		if agents[a.credentials.Key()] {
			return warn(check, "run agents as another Unix user, or in a container (docs/security.md)",
				"agent %s, process %s, runs as this user and can read %s",
				a.credentials.Name, a.pid, creds)
		}
	}
	return ok(check, "no agent was seen that can read the key of who runs the server")
}
