package serve

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/host/console"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// consoling is how `serve` shows its tenants in a browser.
type consoling struct {
	console   string // HOST:PORT or off
	chosen    bool   // an operator has chosen that
	who       string // file of users; empty: in data
	operators string // its old name
	oidc      string // file that says how a provider vouches for users; empty: none
	cert, key string

	started bool            // it was tried
	shown   *console.Server // nil: none
}

const (
	consoleDefault = "127.0.0.1:4280"
	// ConsoleOff is the value of --console that serves none.
	ConsoleOff = "off"
)

const consoleUsage = "`HOST:PORT|off` of the console in a browser, which answers to " +
	console.LocalName +
	" on a loopback address; port 0 takes a free one, an address that others can reach needs " +
	"--console-cert and --console-key"

func (v *consoling) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&v.console, "console", consoleDefault, consoleUsage)
	f.StringVar(&v.who, "console-users", "",
		"`FILE` that says who may do what in the console, read again when it changes (default "+
			"DATA/console/users, made with one admin; docs/guide/console.md)")
	f.StringVar(&v.operators, "console-operators", "", "old name of --console-users")
	if err := f.MarkDeprecated("console-operators", "give the file as --console-users"); err != nil {
		panic("serve: " + err.Error())
	}
	f.StringVar(&v.oidc, "console-oidc", "",
		"`FILE` in YAML that says which OpenID Connect provider vouches for further users, and what "+
			"its claims mean (docs/guide/console.md)")
	f.StringVar(&v.cert, "console-cert", "", "PEM `FILE` of the console's certificate")
	f.StringVar(&v.key, "console-key", "", "PEM `FILE` of that certificate's key")
}

// flagsOfConsole are the flags of the fields of the console's configuration.
var flagsOfConsole = map[string]string{
	"listen": "--console 127.0.0.1:4280, or with --console-cert and --console-key; --console off " +
		"for none", "users": "--console-users FILE", "first": "--console-users FILE",
	"tls": "--console-cert and --console-key: PEM files that fit each other",
}

// check refuses what cannot be an address, before anything is made.
func (v *consoling) check() error {
	if _, _, err := net.SplitHostPort(v.console); err != nil && v.console != ConsoleOff {
		return cli.Fail(cli.ExitUsage, "--console 127.0.0.1:4280, or --console off",
			"%q is no address for the console", v.console)
	}
	if v.who != "" && v.operators != "" {
		return cli.Fail(cli.ExitUsage, "--console-users FILE",
			"--console-operators is the old name of --console-users: give one of them")
	}
	if (v.cert == "") != (v.key == "") {
		return cli.Fail(cli.ExitUsage, "--console-cert FILE --console-key FILE",
			"--console-cert and --console-key go together")
	}
	return nil
}

// startConsole starts the console, once: it outlives a restart of the embedded server.
// That another server of this machine has the default address is no reason not to serve.
func (v *serving) startConsole(log *slog.Logger) error {
	if v.console == ConsoleOff || v.started {
		return nil
	}
	v.started = true
	users := v.consoleUsers()
	provider, err := readProvider(v.oidc)
	if err != nil {
		return err
	}
	server, err := console.Start(console.Config{
		Listen: v.console, TLSCert: v.cert, TLSKey: v.key, Users: users, First: cli.DefaultActor(),
		Provider: provider,
		// With --open, whoever is on this machine may read and write through NATS.
		OpenRead: v.cert == "" && v.open,
		Version:  cli.ReadVersion().Version, Logger: log,
	})
	var refused *ledger.Refused
	switch {
	case errors.As(err, &refused) && refused.Field == "open_read": // the address is what is wrong
		return cli.Fail(cli.ExitUsage, flagsOfConsole["listen"],
			"cannot serve the console: %s, and it has no certificate", refused.Problem)
	case errors.As(err, &refused):
		field, _, _ := strings.Cut(refused.Field, " ") // users line 3
		return cli.Fail(cli.ExitUsage, flagsOfConsole[field], "cannot serve the console: %s: %s",
			refused.Field, refused.Problem)
	case err != nil && !v.chosen:
		log.Warn("no console: its address is taken; choose another with --console, or --console off",
			"cause", err)
		return nil
	case err != nil:
		return cli.Fail(cli.ExitFailed, "--console 127.0.0.1:0 takes a free port",
			"cannot serve: %v", err)
	}
	v.shown = server
	log.Info("console", "url", server.URL(), "users", users)
	return nil
}

// consoleUsers is the file of users: where no one says another, the one of data, or the one
// that was there before there were roles.
func (v *serving) consoleUsers() string {
	users := filepath.Join(v.data, "console", "users")
	before := filepath.Join(v.data, "console", "operators")
	if _, err := os.Stat(users); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(before); err == nil {
			users = before
		}
	}
	return cmp.Or(v.who, v.operators, users)
}

func (v *serving) closeConsole() {
	if v.shown != nil {
		v.shown.Close()
	}
}

// doorText is the door's place in that line.
func doorText(url string) string {
	if url == "" {
		return ""
	}
	return " · http " + url
}

// consoleText is the console's place in the line that serve prints when it is ready.
func consoleText(r Ready) string {
	switch {
	case r.Console == "":
		return ""
	case r.ConsoleToken == "":
		return " · console " + r.Console
	}
	return fmt.Sprintf(" · console %s (token in %s)", r.Console, r.ConsoleToken)
}

// tokenFile is the file with the name and the token of the admin that the first start of the
// console has made; empty: it is gone, as it should be after a while.
func (v *serving) tokenFile() string {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(v.consoleUsers()), "*.token"))
	if err != nil || len(files) != 1 {
		return ""
	}
	return files[0]
}
