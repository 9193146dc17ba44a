package connect

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// Saved is a context: what else would be said with global flags each time. It may hold a
// password in its URL, so only its owner may read the file.
type Saved struct {
	Description string `json:"description,omitempty"`
	Server      string `json:"server,omitempty"`      // NATS URL
	Creds       string `json:"creds,omitempty"`       // file
	TLSCA       string `json:"tls_ca,omitempty"`      // file
	ClientCert  string `json:"client_cert,omitempty"` // file, for servers that ask for one
	ClientKey   string `json:"client_key,omitempty"`  // file
	Inbox       string `json:"inbox,omitempty"`
	Tenant      string `json:"tenant,omitempty"`
	Timeout     string `json:"timeout,omitempty"`
	// NATS names a context of the NATS CLI that server and credentials come from.
	NATS string `json:"nats,omitempty"`
	// Serve marks a context that `serve` has made for the user who runs it. It is found by
	// its server, without being chosen.
	Serve bool `json:"serve,omitempty"`
}

// ConfigDir is where people's settings are: XDG_CONFIG_HOME, or ~/.config.
func ConfigDir() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for saved contexts: %w", err)
	}
	return filepath.Join(home, ".config"), nil
}

// ContextFile is the path of the saved context of a name.
func ContextFile(name string) (string, error) {
	dir, err := ConfigDir()
	return filepath.Join(dir, "sagenbaum", "context", name+".json"), err
}

// Context reads a saved context. The error is fs.ErrNotExist where there is none of the name,
// and a *ledger.Refused where others may read it or it is damaged.
func Context(name string) (c Saved, err error) {
	file, err := ContextFile(name)
	if err != nil {
		return c, err
	}
	if _, err := os.Stat(file); err != nil {
		return c, err
	}
	text, err := access.ReadSecret("context", file)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, ledger.Refuse("context", fmt.Sprintf("%s is damaged: %v", name, err),
			"sagenbaum context rm "+name)
	}
	return c, nil
}

// Save writes a context under a name.
func Save(name string, c Saved) error {
	file, err := ContextFile(name)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return access.WriteSecret(file, append(text, '\n'))
}

// Chosen is the name of the context in use; empty: none.
func Chosen() string {
	dir, err := ConfigDir()
	if err != nil {
		return ""
	}
	name, err := os.ReadFile(filepath.Join(dir, "sagenbaum", "context.txt"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// Local finds the context that `serve` has made for a server of this machine.
func Local(server string) (c Saved, ok bool) {
	pattern, err := ContextFile("local*")
	if err != nil {
		return c, false
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		return c, false
	}
	slices.Sort(files)
	for _, file := range files {
		c, err := Context(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err == nil && c.Serve && SameServer(c.Server, server) {
			return c, true
		}
	}
	return Saved{}, false
}

// SameServer compares two URLs of servers of this machine, whatever they call it.
func SameServer(a, b string) bool {
	place := func(server string) string {
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" {
			return server
		}
		host, port := u.Hostname(), u.Port()
		if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
			host = "localhost"
		}
		if port == "" {
			port = "4222"
		}
		return net.JoinHostPort(host, port)
	}
	return place(a) == place(b)
}

// DataOf is the data folder of the server that `serve` has run here for this user at an address,
// if it is there still.
func DataOf(server string) (dir string, ok bool) {
	c, ok := Local(server)
	if !ok || filepath.Base(filepath.Dir(c.Creds)) != "auth" {
		return "", false
	}
	if _, err := os.Stat(c.Creds); err != nil {
		return "", false
	}
	return filepath.Dir(filepath.Dir(c.Creds)), true
}
