package serve

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sagenbaum/sagenbaum/executor/host/console/access"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// providerFile is the file of --console-oidc.
type providerFile struct {
	Issuer       string        `yaml:"issuer"`
	ClientID     string        `yaml:"client_id"`
	ClientSecret string        `yaml:"client_secret_file"` // a file that holds it
	Scopes       []string      `yaml:"scopes"`
	Name         string        `yaml:"name"` // a claim
	NameSuffix   string        `yaml:"name_suffix"`
	Session      time.Duration `yaml:"session"`
	WithToken    bool          `yaml:"session_ends_with_token"`
	CA           string        `yaml:"ca_file"`
	Roles        []struct {
		Claim   string   `yaml:"claim"`
		Value   string   `yaml:"value"`
		Role    string   `yaml:"role"`
		Tenants []string `yaml:"tenants"`
	} `yaml:"roles"`
}

// readProvider reads the file of --console-oidc; nil where none is given. Files that it names
// are beside it, unless their paths are absolute.
func readProvider(path string) (*access.Provider, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, cli.Fail(cli.ExitUsage, "--console-oidc FILE", "cannot read %s: %v", path, err)
	}
	var file providerFile
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		return nil, cli.Fail(cli.ExitUsage, "docs/guide/console.md has an example",
			"%s is no provider: %v", path, err)
	}
	p := &access.Provider{
		Issuer: file.Issuer, ClientID: file.ClientID, Scopes: file.Scopes, NameClaim: file.Name,
		NameSuffix: file.NameSuffix, SessionTime: file.Session, TokenTime: file.WithToken,
	}
	if p.ClientSecret, err = readClientSecret(beside(path, file.ClientSecret)); err != nil {
		return nil, err
	}
	if file.CA != "" {
		if p.CA, err = os.ReadFile(beside(path, file.CA)); err != nil {
			return nil, cli.Fail(cli.ExitUsage, "ca_file of "+path, "%v", err)
		}
	}
	for _, r := range file.Roles {
		role, err := access.ParseRole(r.Role)
		if err != nil {
			return nil, refusedProvider(path, err)
		}
		grant := access.Grant{Role: role, Tenants: r.Tenants}
		p.Rules = append(p.Rules, access.Rule{Claim: r.Claim, Value: r.Value, Grant: grant})
	}
	if err := p.Check(); err != nil {
		return nil, refusedProvider(path, err)
	}
	return p, nil
}

func refusedProvider(path string, err error) error {
	var refused *ledger.Refused
	if !errors.As(err, &refused) {
		return err
	}
	return cli.Fail(cli.ExitUsage, refused.Want, "%s of %s: %s", refused.Field, path, refused.Problem)
}

// beside is the path of a file that another one names.
func beside(path, name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(path), name)
}

// readClientSecret reads the secret that the provider knows the console by; empty without one.
func readClientSecret(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := cli.ReadSecret("client_secret_file of --console-oidc", path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", cli.Fail(cli.ExitUsage, "client_secret_file of --console-oidc",
			"%s has no secret", path)
	}
	return secret, nil
}
