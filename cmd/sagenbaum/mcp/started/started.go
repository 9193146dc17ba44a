// Package started remembers how gateways of MCP servers were started on this machine, so that a
// host undoes what they have done when they are gone, and whoever finds an undo that nothing serves
// is told what to start.
//
// In a folder of images there is one file for each server and tenant, with the command line of the
// worker that undoes what its gateway does, and without any environment. The user's folder also has
// those whose images are elsewhere.
package started

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Gateway is how the gateway of one server was started.
type Gateway struct {
	Undo   string   `json:"undo"`   // capability that undoes what it does
	Folder string   `json:"folder"` // in which it was started
	Worker []string `json:"worker"` // command line of the worker for it
	Files  bool     `json:"files"`  // its undos go by paths of files: no environment matters
	Tenant string   `json:"tenant"` // in which it records; empty: an earlier version has written it
	State  string   `json:"state"`  // folder of its images; empty: the one that remembers it
}

const (
	prefix  = "mcp." // of the capabilities
	suffix  = ".gateway.json"
	sizeMax = 64 << 10 // bytes of a file
)

// Dir is the folder of images, trash and locks: the one given, or the user's.
func Dir(given string) (string, error) { return DirOf(given, os.LookupEnv) }

// DirOf is Dir for a process with other variables.
func DirOf(given string, variable func(string) (string, bool)) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	if dir, _ := variable("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sagenbaum", "mcp"), nil
	}
	if dir, _ := variable("HOME"); filepath.IsAbs(dir) && os.PathSeparator == '/' {
		return filepath.Join(dir, ".local", "state", "sagenbaum", "mcp"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", cli.Fail(cli.ExitFailed, "--state DIR", "there is no folder for images: %v", err)
	}
	return filepath.Join(home, ".local", "state", "sagenbaum", "mcp"), nil
}

// Remember writes how a gateway was started, and forgets those that were not started again for as
// long as kept says, and do not run. Errors: those of the file system.
func Remember(state string, g Gateway, kept time.Duration, now time.Time) error {
	raw, err := json.Marshal(g)
	if err == nil && len(raw) > sizeMax {
		err = fmt.Errorf("its command line has %d bytes, at most %d are kept", len(raw), sizeMax)
	}
	if err != nil {
		return fmt.Errorf("cannot remember a gateway: %w", err)
	}
	draft, err := os.CreateTemp(state, "gateway-")
	if err != nil {
		return fmt.Errorf("cannot remember a gateway: %w", err)
	}
	_, err = draft.Write(raw)
	err = errors.Join(err, draft.Close())
	if err == nil {
		err = os.Rename(draft.Name(), g.File(state))
	}
	if err != nil {
		return fmt.Errorf("cannot remember a gateway: %w",
			errors.Join(err, os.Remove(draft.Name())))
	}
	for _, file := range Files(state) {
		info, err := os.Stat(file)
		if err != nil || now.Sub(info.ModTime()) <= kept {
			continue
		}
		if old, ok := read(file); !ok || !Served(cmp.Or(old.State, state), old.Undo, old.Tenant) {
			_ = os.Remove(file) // who still needs it is told something less exact
		}
	}
	return nil
}

// Files are those in which a folder remembers gateways.
func Files(state string) []string {
	entries, err := os.ReadDir(state)
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			list = append(list, filepath.Join(state, e.Name()))
		}
	}
	return list
}

// List are the gateways that a folder remembers, those that were started last first. What cannot be
// read is left out.
func List(state string) []Gateway {
	type dated struct {
		Gateway
		at time.Time
	}
	var all []dated
	for _, file := range Files(state) {
		info, err := os.Stat(file)
		if g, ok := read(file); ok && err == nil {
			all = append(all, dated{g, info.ModTime()})
		}
	}
	slices.SortStableFunc(all, func(a, b dated) int { return b.at.Compare(a.at) })
	var list []Gateway
	for _, g := range all {
		list = append(list, g.Gateway)
	}
	return list
}

// File is where a folder remembers a gateway.
func (g Gateway) File(state string) string {
	name := g.Undo
	if g.Tenant != "" {
		name += "." + g.Tenant
	}
	if g.State != "" { // one of the same name may have its images here
		sum := sha256.Sum256([]byte(g.State))
		name += "." + hex.EncodeToString(sum[:8])
	}
	return filepath.Join(state, name+suffix)
}

func read(file string) (g Gateway, ok bool) {
	info, err := os.Stat(file)
	if err != nil || info.Size() > sizeMax {
		return g, false
	}
	raw, err := os.ReadFile(file)
	return g, err == nil && json.Unmarshal(raw, &g) == nil && len(g.Worker) > 0
}

// Of is the capability that undoes the effects of a server, whose calls are staged, and made, under
// names below it.
func Of(capability string) string {
	rest, ok := strings.CutPrefix(capability, prefix)
	if !ok {
		return capability
	}
	server, _, _ := strings.Cut(rest, ".")
	return prefix + server
}

// Next says what to start where nothing serves a capability; empty: it undoes no MCP server.
func Next(capability string) string {
	if !strings.HasPrefix(capability, prefix) {
		return ""
	}
	if state, err := Dir(""); err == nil {
		undo := Of(capability)
		for _, g := range List(state) {
			if g.Undo == undo {
				return g.Line()
			}
		}
	}
	return "sagenbaum serve --mcp FILE with the configuration of its MCP client, or sagenbaum mcp " +
		"worker -- COMMAND with its server, on the machine and as the user of its gateway"
}

// Line is the command line of the worker, as a person types it.
func (g Gateway) Line() string {
	line := cli.CommandLine(g.Worker[0], g.Worker[1:]...)
	if g.Relative() != "" {
		line = cli.CommandLine("cd", g.Folder) + " && " + line
	}
	if !g.Files {
		line += " # with the env of its client's configuration"
	}
	return line
}

// Relative is an argument of the server that is there in the folder of the gateway, and is another
// thing elsewhere; empty: none is.
func (g Gateway) Relative() string {
	command := slices.Index(g.Worker, "--") + 1
	for i, arg := range g.Worker {
		program := i == command && !strings.ContainsRune(arg, os.PathSeparator) // of the PATH
		if i < command || command == 0 || program || arg == "" || filepath.IsAbs(arg) {
			continue
		}
		if _, err := os.Stat(filepath.Join(g.Folder, arg)); err == nil {
			return arg
		}
	}
	return ""
}
