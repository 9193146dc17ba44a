package mcp

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/connect"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// hostable says why a host does not start the server of an entry: others may write a file that says
// what it runs, or what it names is another thing in the folder of the host than in that of the
// client.
func (e *entry) hostable() error {
	if e.problem != nil {
		return e.problem
	}
	places := slices.Clone(e.config.Roots)
	if own := e.gateway; own != nil {
		places = slices.Concat(places, own.packs, own.roots)
		for _, place := range []string{own.state, own.file} {
			if place != "" {
				places = append(places, place)
			}
		}
	}
	if strings.ContainsAny(e.config.Command, `/\`) {
		places = append(places, e.config.Command)
	}
	for _, arg := range e.config.Args {
		for _, start := range []string{"./", "../"} {
			if strings.HasPrefix(arg+"/", start) {
				places = append(places, arg)
			}
		}
	}
	if there := e.thereIn(); there != "" {
		places = append(places, there)
	}
	for _, place := range places {
		if !filepath.IsAbs(place) {
			return e.unfit("an absolute path", place+" is relative to the folder of the client")
		}
	}
	if _, err := exec.LookPath(e.config.Command); err != nil && e.config.URL == "" {
		return e.unfit("an absolute path, or a program on the PATH of the host", err.Error())
	}
	for _, file := range e.files() {
		if why, want := trusted(file); why != "" {
			return e.unfit(want, why)
		}
	}
	return nil
}

// thereIn is an argument that names a file of the folder in which the server is configured, or of
// this one: the program may be there for its client, and not for a host. A folder may have the name
// of a word, such as run. Empty: no argument does.
func (e *entry) thereIn() string {
	folders := []string{"."}
	for _, file := range e.sources {
		folders = append(folders, filepath.Dir(file))
	}
	for _, arg := range e.config.Args {
		for _, folder := range folders {
			info, err := os.Stat(filepath.Join(folder, arg))
			if err == nil && info.Mode().IsRegular() && !filepath.IsAbs(arg) {
				return arg
			}
		}
	}
	return ""
}

// keeps says why a host does not believe what the folder of states has of the roots of clients:
// others may write there.
func (e *entry) keeps() error {
	if _, err := os.Stat(e.config.State); err != nil {
		return nil // no gateway has made it
	}
	if why, want := trusted(e.config.State); why != "" {
		return e.unfit(want, why)
	}
	return nil
}

func (e *entry) unfit(want, why string) error {
	return cli.Fail(cli.ExitUsage, want, "mcpServers.%s: %s", e.name, why)
}

// trusted says why others than root and the user of this process decide what is in a file, and what
// to do about it; empty: they do not.
func trusted(file string) (why, want string) {
	resolved, err := filepath.EvalSymlinks(file)
	if err == nil {
		resolved, err = filepath.Abs(resolved)
	}
	if err == nil {
		file, err = filepath.Abs(file)
	}
	if err != nil {
		return err.Error(), "a file that is there"
	}
	for _, path := range []string{resolved, file} {
		for at := path; ; at = filepath.Dir(at) {
			info, err := os.Stat(at)
			switch {
			case err != nil:
				return err.Error(), "a file that is there"
			case foreign(info):
				return "another user owns " + at + ", and so decides what is run", "a file of this user's"
			case info.Mode().Perm()&0o022 != 0 && (at == path || info.Mode()&os.ModeSticky == 0) &&
				os.PathSeparator == '/':
				return "others may write " + at + ", and so decide what is run", "chmod go-w " + at
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return "", ""
}

// settings are those of the gateway of a configuration: its flags, else the environment that its
// client gives it, else what is given here.
func (e *entry) settings(given *pflag.FlagSet) (*cli.Settings, error) {
	root, sub := &cobra.Command{Use: "sagenbaum"}, &cobra.Command{Use: "mcp"}
	root.AddCommand(sub)
	settings := &cli.Settings{}
	settings.Flags(root)
	var failed error
	set := func(f *pflag.Flag) {
		// A set that was parsed as a part of another one does not know which it has.
		if own := root.PersistentFlags().Lookup(f.Name); own != nil && f.Changed {
			failed = cmp.Or(failed, root.PersistentFlags().Set(f.Name, f.Value.String()))
		}
	}
	given.VisitAll(set)
	if e.gateway != nil {
		root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
			name := "SAGENBAUM_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
			if value := e.env[name]; value != "" {
				failed = cmp.Or(failed, root.PersistentFlags().Set(f.Name, value))
			}
		})
		e.globals.VisitAll(set)
	}
	if failed == nil {
		failed = settings.Recall(sub)
	}
	return settings, failed
}

// named reports whether the gateway of a server names a ledger, which may be another than this
// host's: then what is remembered of the same server may have been done here all the same.
func (h hosted) named() bool { return h.gateway.Server != connect.ServerDefault }

// isHere refuses a gateway that records at another server than this host's, where it names one.
func (h hosted) isHere(own *nats.Conn) error {
	if !h.named() {
		return nil
	}
	options, err := h.gateway.Credentials(h.gateway.Tenant)
	if err != nil {
		return err
	}
	conn, err := h.gateway.Dial(append(options, nats.Name("sagenbaum mcp host"),
		nats.Timeout(h.gateway.Timeout))...)
	if err != nil {
		return fmt.Errorf("cannot tell whether its gateway records here: %s: %w",
			cli.Shown(h.gateway.Server), err)
	}
	defer conn.Close()
	if conn.ConnectedServerId() == own.ConnectedServerId() {
		return nil
	}
	return fmt.Errorf("its gateway records at %s, which is another server: run sagenbaum mcp worker "+
		"--config %s --server %s", cli.Shown(h.gateway.Server), h.file, cli.Shown(h.gateway.Server))
}
