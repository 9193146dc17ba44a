package serve

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/host/page"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// secretPrefix begins a webhook's secret, as the Standard Webhooks specification
// has it.
const secretPrefix = "whsec_"

// webhookKeys reads the secrets that sign what is posted, by the hook that has them, the
// newest first; those of "" are for hooks that have none. A first start makes one for each
// webhook, so that none goes unsigned, and no receiver can sign what is for another.
func (v *serving) webhookKeys(hooks map[string]string) (map[string][][]byte, error) {
	if len(hooks) == 0 {
		return nil, nil
	}
	path := v.secret
	if path == "" {
		path = filepath.Join(v.data, "webhook.secret")
		if err := makeSecrets(path, hooks); err != nil {
			return nil, err
		}
	}
	text, err := cli.ReadSecret("--webhook-secret FILE", path)
	if err != nil {
		return nil, err
	}
	keys, err := parseSecrets(path, string(text))
	if err != nil {
		return nil, err
	}
	for hook := range hooks {
		if len(keys[hook]) == 0 && len(keys[""]) == 0 {
			return nil, cli.Fail(cli.ExitUsage, "a line "+hook+" "+secretPrefix+
				" and at least 24 bytes in base64, as of: openssl rand -base64 32",
				"%s has no secret for the hook %s", path, hook)
		}
	}
	return keys, nil
}

// parseSecrets reads a secret a line, after the hook that it is for; without one it is for all
// that have none.
func parseSecrets(path, text string) (map[string][][]byte, error) {
	keys := map[string][][]byte{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		hook := ""
		if len(fields) == 2 {
			hook, fields = fields[0], fields[1:]
		}
		encoded, ok := strings.CutPrefix(fields[0], secretPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(fields) != 1 || len(key) < page.WebhookKeyMin ||
			hook != "" && !ledger.ValidToken(hook) {
			return nil, cli.Fail(cli.ExitUsage,
				"a line "+secretPrefix+
					" and at least 24 bytes in base64, as of: openssl rand -base64 32, with the name "+
					"of a hook and a space before it if it is for that hook alone",
				"line %d of %s is no secret", n, path)
		}
		keys[hook] = append(keys[hook], key)
	}
	if len(keys) == 0 {
		return nil, cli.Fail(cli.ExitUsage,
			"a line "+secretPrefix+" and at least 24 bytes in base64", "%s holds no secret", path)
	}
	return keys, nil
}

// makeSecrets makes the secrets of a folder that has none yet. Where there is only one webhook
// its secret needs no name.
func makeSecrets(path string, hooks map[string]string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // there, or what is wrong is said when it is read
	}
	text := ""
	for _, hook := range slices.Sorted(maps.Keys(hooks)) {
		key := make([]byte, 32)
		rand.Read(key) // never fails, as crypto/rand documents
		if len(hooks) > 1 {
			text += hook + " "
		}
		text += secretPrefix + base64.StdEncoding.EncodeToString(key) + "\n"
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return cli.Fail(cli.ExitFailed, "--data DIR", "cannot make the webhooks' secrets: %v", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return cli.Fail(cli.ExitFailed, "--data DIR", "cannot make the webhooks' secrets: %v", err)
	}
	return nil
}

// hooks reads --webhook. A URL has no name of a hook before its first '='.
func (v *serving) hooks() (map[string]string, error) {
	hooks := map[string]string{}
	for _, given := range v.webhooks {
		hook, webhook, named := strings.Cut(given, "=")
		if !named || !ledger.ValidToken(hook) {
			hook, webhook = api.PageDefault, given
		}
		if _, twice := hooks[hook]; twice {
			return nil, cli.Fail(cli.ExitUsage,
				"one --webhook for each hook, and one without a hook for all others",
				"--webhook for %s is given twice", hook)
		}
		var refused *ledger.Refused
		if err := page.CheckWebhook(hook, webhook); errors.As(err, &refused) {
			return nil, cli.Fail(cli.ExitUsage,
				"--webhook [HOOK=][slack+|teams+]URL; "+refused.Want,
				"the --webhook for %s cannot be used: %s", hook, refused.Problem)
		}
		hooks[hook] = webhook
	}
	return hooks, nil
}
