package doctor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
)

// program is a process of this machine, as far as we may look at it.
type program struct {
	pid       string
	uid       string // of the user whose it is; empty: not known
	arguments string
	creds     []string // files of its environment and arguments
	local     string   // local.creds of the data folder, where it is a server
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
		folder := filepath.Dir(file)
		p := program{pid: filepath.Base(folder),
			arguments: strings.ReplaceAll(string(line), "\x00", " ")}
		if status, err := os.ReadFile(filepath.Join(folder, "status")); err == nil {
			if found := uidLine.FindSubmatch(status); found != nil {
				p.uid = string(found[1])
			}
		}
		at, _ := os.Readlink(filepath.Join(folder, "cwd")) // that of another user is not told
		found := func(path string) string {
			if filepath.IsAbs(path) || at == "" {
				return path
			}
			return filepath.Join(at, path)
		}
		arguments := strings.Split(string(line), "\x00")
		if creds := valueOf(arguments, "--creds"); creds != "" {
			p.creds = append(p.creds, found(creds))
		}
		if slices.Contains(arguments, "serve") {
			data := cmp.Or(valueOf(arguments, "--data"), serve.DataDefault)
			p.local = filepath.Join(found(data), "auth", "local.creds")
		}
		if environ, err := os.ReadFile(filepath.Join(folder, "environ")); err == nil {
			for _, entry := range strings.Split(string(environ), "\x00") {
				if creds, ok := strings.CutPrefix(entry, "SAGENBAUM_CREDS="); ok && creds != "" {
					p.creds = append(p.creds, found(creds))
				}
			}
		}
		all = append(all, p)
	}
	return all
}

// valueOf is what arguments give to a flag; empty: they do not.
func valueOf(arguments []string, flag string) string {
	for i, argument := range arguments {
		if value, ok := strings.CutPrefix(argument, flag+"="); ok {
			return value
		}
		if argument == flag && i+1 < len(arguments) {
			return arguments[i+1]
		}
	}
	return ""
}

// secretArguments are what no argument may have: everyone on the machine sees it.
var secretArguments = []struct {
	what string
	is   *regexp.Regexp
}{
	{"a password or a token in a URL", regexp.MustCompile(
		`\b(nats|tls|wss?|nats-route)://[^\s/@,]+@`)},
	{"a token of the door", regexp.MustCompile(`\bsbt1_[\w-]{8,}\.[\w-]{8,}`)},
	{"a seed", regexp.MustCompile(`\bS[UAONCX][A-Z2-7]{56}\b`)}, // an nkey
}

// judgeArguments looks for secrets that everyone on the machine can see.
func judgeArguments(all []program) Finding {
	const check = "arguments"
	for _, p := range all {
		for _, secret := range secretArguments {
			if secret.is.MatchString(p.arguments) {
				return warn(check, "a file of credentials, or the environment "+
					"(SAGENBAUM_NATS, SAGENBAUM_CREDS)",
					"everyone on this machine can see %s in the arguments of process %s", secret.what, p.pid)
			}
		}
	}
	return ok(check, "no program shows a password, a token or a seed in its arguments")
}

// usersOf asks the server for its users, on a connection that is about no tenant.
func usersOf(ctx context.Context, s *cli.Settings) (a access.Answer, err error) {
	s.Everywhere(true)
	err = s.With(func(c *cli.Client) error {
		return c.Call(ctx, api.ServerSubject(api.UserLs), access.Request{}, &a)
	})
	return a, err
}

// examineSeed looks for users who can read the key of the user who runs this server: they run as
// the same Unix user. The one who runs it looks for its agents; what other servers let in is
// nothing to this one, so the server is asked for its users, once there is a client to ask about.
// All others try it themselves.
func examineSeed(c *cli.Client, s *cli.Settings, all []program,
	users func() (access.Answer, error)) Finding {
	const check = "seed"
	switch role := roleOf(s.Self); role {
	case access.Local:
	case "":
		return skipped(check, "", "not checked: the credentials name no role")
	default:
		return judgeLocal(*s.Self, localKey(all, s))
	}
	found := clientsBeside(all, s.Creds)
	if len(found) == 0 {
		return judgeSeed(found, s.Creds, nil)
	}
	a, err := users()
	if f := (*cli.Failure)(nil); errors.As(err, &f) && f.Code == cli.ExitNotAllowed && !f.Granted {
		return skipped(check, "", "not checked: %s does not say which agents are its own", c.Server)
	}
	if err != nil {
		return problem(check, err)
	}
	return judgeSeed(found, s.Creds, a.Users)
}

// clientBeside is a process with credentials that we can read: it runs as the same user.
type clientBeside struct {
	pid         string
	credentials access.Credentials
}

// clientsBeside are those of any server, but for whoever has our own credentials. A superuser sees
// those of other users, too, which cannot read what is its own.
func clientsBeside(all []program, own string) (found []clientBeside) {
	uid := strconv.Itoa(os.Getuid())
	for _, p := range all {
		if p.uid != "" && p.uid != uid {
			continue
		}
		for _, file := range p.creds {
			if file == own || !readable(file) {
				continue
			}
			if c, err := access.ReadCredentials(file); err == nil {
				found = append(found, clientBeside{p.pid, c})
			}
		}
	}
	return found
}

// readable reports whether a path that any program has told may be opened: a pipe or a device would
// hold us up, or never end.
func readable(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() <= 1<<20
}

// localKey is a file that we can read, with the key of the user who runs the server that we are
// connected to, wherever one may be: in the context of serve, in a data folder, and in the
// arguments and the environment of programs. Empty: there is none.
func localKey(all []program, s *cli.Settings) string {
	files := []string{filepath.Join(serve.DataDefault, "auth", "local.creds")}
	if c, ok := connect.Local(s.Server); ok {
		files = append(files, c.Creds)
	}
	for _, p := range all {
		if files = append(files, p.creds...); p.local != "" {
			files = append(files, p.local)
		}
	}
	for _, file := range files {
		if !readable(file) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		c, err := access.ParseCredentials(text)
		if err == nil && c.Role == access.Local && (connect.SameServer(c.Servers, s.Server) ||
			c.CA != "" && c.CA == s.Self.CA) {
			return file
		}
	}
	return ""
}

// judgeLocal is what it means that a user with another role can read a file with that key.
func judgeLocal(self access.Credentials, file string) Finding {
	const check = "seed"
	if file == "" {
		return ok(check, "the key of the user who runs the server was not found where %s runs", self.Name)
	}
	return warn(check, "run it as another Unix user, or in a container (docs/security.md)",
		"%s %s can do everything here: it can read the key of the user who runs the server, %s",
		self.Role, self.Name, file)
}

// examineUsers says whether the server takes what its file of users says.
func examineUsers(s *cli.Settings, users func() (access.Answer, error)) Finding {
	const check = "users"
	if role := roleOf(s.Self); role != access.Local {
		return skipped(check, "", "not checked: only the user who runs the server is told")
	}
	a, err := users()
	switch {
	case err != nil:
		return problem(check, err)
	case a.Stale != "":
		return broken(check, "mend the file auth/users of the data folder, or put an earlier copy there",
			"the users stay what they were, no change of their file is taken: %s", a.Stale).mayPass(true)
	case a.Error != "":
		return skipped(check, "", "not checked: %s", a.Error)
	}
	return ok(check, "%s, as their file has it", cli.CountOf(len(a.Users), "user"))
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
	return ok(check, "no agent was seen that can read the key of the user who runs the server")
}
