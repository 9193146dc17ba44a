package serve

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/host"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// secretPrefix begins a webhook's secret, as the Standard Webhooks specification
// has it.
const secretPrefix = "whsec_"

// webhookKeys reads the secrets that sign what is posted, the newest first. A first
// start makes one, so that no webhook goes unsigned.
func (v *serving) webhookKeys() ([][]byte, error) {
	if len(v.webhooks) == 0 {
		return nil, nil
	}
	path := v.secret
	if path == "" {
		path = filepath.Join(v.data, "webhook.secret")
		if err := makeSecret(path); err != nil {
			return nil, err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, cli.Fail(cli.ExitFailed, "--webhook-secret FILE",
			"cannot read the webhooks' secret: %v", err)
	}
	if info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		return nil, cli.Fail(cli.ExitUsage, "chmod 600 "+path,
			"others may read the webhooks' secret in %s (%v)", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, cli.Fail(cli.ExitFailed, "--webhook-secret FILE",
			"cannot read the webhooks' secret: %v", err)
	}
	var keys [][]byte
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		encoded, ok := strings.CutPrefix(line, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(key) < host.WebhookKeyMin {
			return nil, cli.Fail(cli.ExitUsage,
				"a line "+secretPrefix+
					" and at least 24 bytes in base64, as of: openssl rand -base64 32",
				"line %d of %s is no secret", len(keys)+1, path)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, cli.Fail(cli.ExitUsage,
			"a line "+secretPrefix+" and at least 24 bytes in base64", "%s holds no secret", path)
	}
	return keys, nil
}

// makeSecret makes the secret of a folder that has none yet.
func makeSecret(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // there, or what is wrong is said when it is read
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return cli.Fail(cli.ExitFailed, "--webhook-secret FILE",
			"cannot make the webhooks' secret: %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return cli.Fail(cli.ExitFailed, "--data DIR", "cannot make the webhooks' secret: %v", err)
	}
	if err := os.WriteFile(path, []byte(secretPrefix+base64.StdEncoding.EncodeToString(key)+"\n"),
		0o600); err != nil {
		return cli.Fail(cli.ExitFailed, "--data DIR", "cannot make the webhooks' secret: %v", err)
	}
	return nil
}
