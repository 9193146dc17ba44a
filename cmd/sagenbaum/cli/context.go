package cli

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
)

// Saved is a context: what else would be said with global flags each time. It may
// hold a password in its URL, so only its owner may read the file.
type Saved struct {
	Description string `json:"description,omitempty"`
	Server      string `json:"server,omitempty"` // NATS URL
	Creds       string `json:"creds,omitempty"`  // file
	TLSCA       string `json:"tls_ca,omitempty"` // file
	Inbox       string `json:"inbox,omitempty"`
	Tenant      string `json:"tenant,omitempty"`
	Timeout     string `json:"timeout,omitempty"`
	// NATS names a context of the NATS CLI that server and credentials come from.
	NATS string `json:"nats,omitempty"`
}

// NatsPrefix names a context of the NATS CLI where one of ours is meant otherwise.
const NatsPrefix = "nats:"

// ContextHint is what helps where contexts cannot be read or written.
const ContextHint = "XDG_CONFIG_HOME=DIR, a folder of yours; by default ~/.config"

// configDir is where people's settings are.
func configDir() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", Fail(ExitFailed, "XDG_CONFIG_HOME=DIR",
			"there is no folder for saved contexts: %v", err)
	}
	return filepath.Join(home, ".config"), nil
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
func CurrentContext() string {
	file, err := CurrentFile()
	if err != nil {
		return ""
	}
	name, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

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
func ReadOwnContext(name string) (c Saved, err error) {
	file, err := ContextFile(name)
	if err != nil {
		return c, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return c, err
	}
	if info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		return c, Fail(ExitUsage, "chmod 600 "+file, "others may read context %s (%v)", name,
			info.Mode().Perm())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, Fail(ExitFailed, "sagenbaum context rm "+name, "cannot read context %s: %v", name,
			err)
	}
	return c, nil
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
