package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// hostedFile is the configuration of a client.
func hostedFile(t *testing.T, servers string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers": {`+servers+`}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// asked runs what serves the undos of files until it has asked for n connections, and returns for
// which tenants, and the log.
func asked(t *testing.T, n int, files ...string) (tenants []string, said string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked, ended := make(chan string), make(chan struct{})
	var log strings.Builder
	go func() {
		defer close(ended)
		Host(files)(ctx, func(tenant string) (*nats.Conn, error) {
			select {
			case asked <- tenant:
			case <-ctx.Done():
			}
			return nil, errors.New("not yet")
		}, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	for range n {
		select {
		case tenant := <-asked:
			tenants = append(tenants, tenant)
		case <-ended:
			t.Fatalf("it serves %v: %s", tenants, &log)
		}
	}
	cancel()
	<-ended
	slices.Sort(tenants)
	return tenants, log.String()
}

// A server is tried again and does not keep the others from being served, each in the tenant that
// its gateway records in.
func TestAHostServesEachServerInTheTenantOfItsGateway(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	user := access.User{Tenant: "c", Name: "agent1", Role: access.Agent}
	creds, err := access.NewCredentials(&user)
	if err != nil {
		t.Fatal(err)
	}
	text, err := creds.Format()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "agent1.creds")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	contexts := filepath.Join(config, "sagenbaum", "context")
	if err := os.MkdirAll(contexts, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(contexts, "there.json"), []byte(`{"tenant": "d"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	clients := hostedFile(t, fmt.Sprintf(`
		"flag": {"command": "sagenbaum", "args": ["mcp", "--tenant", "a", "--", "cat", "1"],
			"env": {"SAGENBAUM_TENANT": "b"}},
		"env": {"command": "sagenbaum", "args": ["mcp", "--", "cat", "2"], "env": {"SAGENBAUM_TENANT": "b"}},
		"creds": {"command": "sagenbaum", "args": ["mcp", "--creds", %q, "--", "cat", "3"]},
		"env-creds": {"command": "sagenbaum", "args": ["mcp", "--", "cat", "4"], "env": {"SAGENBAUM_CREDS": %q}},
		"context": {"command": "sagenbaum", "args": ["mcp", "--context", "there", "--", "cat", "5"]},
		"none": {"command": "sagenbaum", "args": ["mcp", "--", "cat", "6"]},
		"past": {"command": "cat", "env": {"SAGENBAUM_TENANT": "b"}},
		"far": {"type": "http", "url": "https://example.com/mcp"}`, file, file))
	tenants, said := asked(t, 16, clients) // each twice
	if got := strings.Join(tenants, " "); got != "a a b b c c c c d d"+strings.Repeat(" default", 6) {
		t.Errorf("it asks for %s: %s", got, said)
	}
}

// What cannot be served is said, and keeps the others from nothing.
func TestAHostSaysWhatItDoesNotServe(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	many := make([]string, 34)
	for i := range many {
		many[i] = fmt.Sprintf(`"s%d": {"command": "cat", "args": ["%d"]}`, i, i)
	}
	loose := hostedFile(t, `"x": {"command": "cat"}`)
	if err := os.Chmod(loose, 0o620); err != nil {
		t.Fatal(err)
	}
	pack := filepath.Join(filepath.Dir(loose), "pack.yaml")
	if err := os.WriteFile(pack, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(pack, 0o602); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	if err := os.Chmod(state, 0o770); err != nil {
		t.Fatal(err)
	}
	gateway := func(args string) string {
		return `"x": {"command": "sagenbaum", "args": ["mcp", ` + args + `]}`
	}
	for says, servers := range map[string]string{
		"has no command":              `"x": {}`,
		"without a server":            gateway(`"--verbose"`),
		"is no tenant":                gateway(`"--tenant", "a.b", "--", "cat"`),
		"no such file":                gateway(`"--pack", "/none", "--", "cat"`),
		"cannot use the credentials":  gateway(`"--creds", "/none", "--", "cat"`),
		`no context "none-such"`:      gateway(`"--context", "none-such", "--", "cat"`),
		"serves 32 servers at most":   strings.Join(many, ","),
		"cannot read servers from":    "",
		"./serve is relative":         `"x": {"command": "./serve"}`,
		"bin/serve is relative":       gateway(`"--", "bin/serve"`),
		"no-such-program":             `"x": {"command": "no-such-program"}`,
		"it names none in mcpServers": `}, "other": {`,
		"own.py is relative":          gateway(`"--", "cat", "own.py"`),
		"config.go is relative":       gateway(`"--", "cat", "config.go"`),
		"want https, or http on":      `"x": {"url": "ftp://x"}`,
		"../data is relative":         gateway(`"--", "cat", "../data"`),
		". is relative":               gateway(`"--", "cat", "."`),
		"images is relative":          gateway(`"--state", "images", "--", "cat"`),
		"p.yaml is relative":          gateway(`"--pack", "p.yaml", "--", "cat"`),
		"root is relative":            gateway(`"--root", "root", "--", "cat"`),
		"may write " + pack:           gateway(fmt.Sprintf(`"--pack", %q, "--", "cat"`, pack)),
		"may write " + state:          gateway(fmt.Sprintf(`"--state", %q, "--", "cat"`, state)),
		"may write " + loose:          gateway(fmt.Sprintf(`"--config", %q`, loose)),
	} {
		bad, good := hostedFile(t, servers), hostedFile(t, `"good": {"command": "cat", "args": ["good"]}`)
		if err := os.WriteFile(filepath.Join(filepath.Dir(bad), "own.py"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, said := asked(t, 1, bad, good); !strings.Contains(strings.ReplaceAll(said, `\"`, `"`), says) {
			t.Errorf("%s: it says %s, want %q", servers, said, says)
		}
	}
	_, said := asked(t, 1, filepath.Join(t.TempDir(), "none"), hostedFile(t, `"x": {"command": "cat"}`))
	if !strings.Contains(said, "no such file") || !strings.Contains(said, "--mcp FILE of one that is there") {
		t.Errorf("of a file that is not there it says %s", said)
	}
}

// lines are what a log says.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

// A file that has changed is read again, and so is a pack that it names: what is new is served, what
// is gone is not, and what is as before goes on. One that cannot be read changes nothing.
func TestAHostReadsAgainWhatHasChanged(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	pack := filepath.Join(t.TempDir(), "pack.yaml")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const text = "apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: x\ntools: {a: {class: effectless}}\n"
	write(pack, text)
	gateway := func(name string) string {
		return fmt.Sprintf(`%q: {"command": "sagenbaum", "args": ["mcp", "--tenant", %q, "--pack", %q, "--", "cat"]}`,
			name, name, pack)
	}
	file := hostedFile(t, gateway("a"))
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(lines, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		Host([]string{file})(ctx, func(tenant string) (*nats.Conn, error) {
			events <- "asks for " + tenant
			return nil, errors.New("not yet")
		}, slog.New(slog.NewTextHandler(events, nil)))
	}()
	wait := func(want string) {
		t.Helper()
		late := time.After(testenv.Patience)
		for {
			select {
			case got := <-events:
				if strings.Contains(got, want) {
					return
				}
			case <-late:
				t.Fatalf("it does not say %q", want)
			}
		}
	}
	wait("asks for a")
	write(file, `{"mcpServers": {`+gateway("a")+","+gateway("b")+`}}`)
	wait("asks for b")
	write(file, `{"mcpServers": {`)
	wait("cannot read servers")
	wait("asks for a")
	write(file, `{"mcpServers": {`+gateway("b")+`}}`)
	wait("not served any more")
	wait("asks for b")
	write(pack, strings.Replace(text, "a:", "other:", 1))
	wait("not served any more")
	wait("asks for b")
	cancel()
	<-ended
	close(events)
	for got := range events {
		if strings.Contains(got, "asks for a") {
			t.Error("what is gone is served")
		}
	}
}

// What a client gives its gateway as environment says where that keeps its state, and so what its
// undos are called.
func TestTheStateOfAGatewayIsWhereItsClientSays(t *testing.T) {
	home, own := t.TempDir(), t.TempDir()
	t.Setenv("XDG_STATE_HOME", own)
	for env, want := range map[string]string{
		"{}": filepath.Join(own, "sagenbaum", "mcp"),
		fmt.Sprintf(`{"XDG_STATE_HOME": %q}`, home):             filepath.Join(home, "sagenbaum", "mcp"),
		fmt.Sprintf(`{"XDG_STATE_HOME": "", "HOME": %q}`, home): filepath.Join(home, ".local", "state", "sagenbaum", "mcp"),
	} {
		o := new(options)
		entries, err := o.readFile(hostedFile(t, `"x": {"command": "sagenbaum", "args": ["mcp", "--", "cat"], "env": `+
			env+`}, "y": {"command": "cat", "env": `+env+`}`))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{want, filepath.Join(own, "sagenbaum", "mcp")} { // y is no gateway
			if err := o.complete(&entries[i]); err != nil || entries[i].config.State != want {
				t.Errorf("%s of %s: %s, %v, want %s", env, entries[i].name, entries[i].config.State, err, want)
			}
		}
	}
}

// Two entries of one name are one server, or none: an undo must not reach the wrong one.
func TestAHostServesAServerThatIsThereTwiceOnce(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	gateway := func(tenant, env string) string {
		return fmt.Sprintf(`"memory": {"command": "sagenbaum", "args": ["mcp", "--tenant", %q, "--", "cat"],
			"env": {"FILE": %q}}`, tenant, env)
	}
	tenants, said := asked(t, 4, hostedFile(t, gateway("a", "1")), hostedFile(t, gateway("a", "1")),
		hostedFile(t, gateway("b", "1")))
	if got := strings.Join(tenants, " "); got != "a a b b" || said != "" && strings.Contains(said, "wrong one") {
		t.Errorf("it asks for %s: %s", got, said)
	}
	one, other := hostedFile(t, gateway("a", "1")), hostedFile(t, gateway("a", "2"))
	tenants, said = asked(t, 2, one, other, hostedFile(t, gateway("b", "1")))
	if got := strings.Join(tenants, " "); got != "b b" || strings.Count(said, "could reach the wrong one") != 2 {
		t.Errorf("it asks for %s: %s", got, said)
	}
}

// What a gateway has recorded at another server is left to the host of that one.
func TestAHostServesTheGatewaysThatRecordInIt(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	var urls []string
	var own *nats.Conn
	for range 2 {
		server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		urls = append(urls, server.URL())
		if own, err = server.Connect(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(own.Close)
	}
	for flags, says := range map[string]string{
		"":                                   "",
		`"--server", "` + urls[1] + `", `:    "",
		`"--server", "` + urls[0] + `", `:    urls[0] + ", which is another server",
		`"--server", "nats://127.0.0.1:1", `: "cannot tell whether its gateway records here",
	} {
		entries, err := new(options).readFile(hostedFile(t, `"x": {"command": "sagenbaum", "args": ["mcp", `+flags+`"--", "cat"]}`))
		if err != nil {
			t.Fatal(err)
		}
		h := hosted{entry: entries[0]}
		if h.gateway, err = h.entry.settings(new(pflag.FlagSet)); err != nil {
			t.Fatal(err)
		}
		err = h.isHere(own)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", flags, err, says)
		}
	}
}

// Who may write a file of --mcp has programs run as the user of the host.
func TestAFileThatOthersMayWriteIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"own", "shared", "sticky", "shared/deep"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, sub, "f"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"shared": 0o770, "sticky": 0o777 | os.ModeSticky, "own": 0o755} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"own/there": "shared/deep/f", "shared/here": "own/f", "own/good": "own/f"} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for file, says := range map[string]string{"own/f": "", "own/good": "", "sticky/f": "",
		"shared/f": "may write " + filepath.Join(dir, "shared"), "shared/deep/f": "may write",
		"own/there": "may write", "shared/here": "may write", "none": "no such file"} {
		why, want := trusted(filepath.Join(dir, file))
		if !strings.Contains(why, says) || (why == "") != (says == "") || (want == "") != (says == "") {
			t.Errorf("%s: %q, want %q", file, why, says)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(filepath.Join(dir, "own/f"), 12345, -1); err != nil {
		t.Fatal(err)
	}
	if why, _ := trusted(filepath.Join(dir, "own/f")); !strings.Contains(why, "another user owns") {
		t.Errorf("another user's: %q", why)
	}
}

func TestWhatAServerSaysIsLoggedByLines(t *testing.T) {
	var log strings.Builder
	s := &said{log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, part := range []string{"a", "b\nc", strings.Repeat("d", 2*saidMax), "\n", "e"} {
		if _, err := io.WriteString(s, part); err != nil {
			t.Fatal(err)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "text=ab\n") ||
		!strings.Contains(got, "text=c"+strings.Repeat("d", saidMax-1)+"\n") {
		t.Errorf("it logs %.300s", got)
	}
}
