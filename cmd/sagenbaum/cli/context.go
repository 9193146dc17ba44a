package cli

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Saved is a context.
type Saved = connect.Saved

// NatsPrefix names a context of the NATS CLI where one of ours is meant otherwise.
const NatsPrefix = "nats:"

// ContextHint is what helps where contexts cannot be read or written.
const ContextHint = "XDG_CONFIG_HOME=DIR, a folder of yours; by default ~/.config"

// configDir is where people's settings are.
func configDir() (string, error) {
	dir, err := connect.ConfigDir()
	if err != nil {
		return "", Fail(ExitFailed, "XDG_CONFIG_HOME=DIR", "%v", err)
	}
	return dir, nil
}

// ContextFile is the path of the saved context of that name.
func ContextFile(name string) (string, error) {
	dir, err := configDir()
	return filepath.Join(dir, "sagenbaum", "context", name+".json"), err
}

// NatsContextFile is the path of a context of the NATS CLI.
func NatsContextFile(name string) (string, error) {
	dir, err := configDir()
	return filepath.Join(dir, "nats", "context", name+".json"), err
}

// CurrentFile holds the name of the context in use.
func CurrentFile() (string, error) {
	dir, err := configDir()
	return filepath.Join(dir, "sagenbaum", "context.txt"), err
}

// CurrentContext is the context in use; empty: none.
func CurrentContext() string { return connect.Chosen() }

// ReadContext finds a context by name: one of ours, else one of the NATS CLI.
func ReadContext(name string) (Saved, error) {
	nats, only := strings.CutPrefix(name, NatsPrefix)
	if !ValidContext(nats) {
		return Saved{}, Fail(ExitUsage, "sagenbaum context ls", "%q is no name of a context", name)
	}
	if !only {
		c, err := ReadOwnContext(name)
		if !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	file, err := NatsContextFile(nats)
	if err != nil {
		return Saved{}, err
	}
	if _, err := os.Stat(file); err != nil {
		return Saved{}, Fail(ExitUsage, "sagenbaum context ls", "there is no context %q", name)
	}
	return Saved{NATS: nats}, nil
}

// ValidContext reports whether a name can be that of a context: one file name, not hidden.
func ValidContext(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.ContainsAny(name, `/\`) &&
		len(name) <= 128
}

// ReadOwnContext reads a context of ours; it refuses a file that others may read.
func ReadOwnContext(name string) (Saved, error) {
	c, err := connect.Context(name)
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		return c, Fail(ExitUsage, refused.Want, "cannot use context %s: %s", name, refused.Problem)
	}
	return c, err
}

// NatsContextURL is what a context of the NATS CLI connects to, for messages.
func NatsContextURL(file string) string {
	var c struct {
		URL string `json:"url"`
	}
	if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &c) == nil &&
		c.URL != "" {
		return c.URL
	}
	return nats.DefaultURL
}
