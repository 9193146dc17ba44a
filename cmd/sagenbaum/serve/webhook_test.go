package serve

import (
	"bytes"
	"encoding/base64"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func line(hook string, b byte, n int) string {
	return hook + secretPrefix + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, n)) + "\n"
}

func TestASecretIsOfItsHook(t *testing.T) {
	text := "# secrets\n\n" + line("", 1, 32) + line("payments ", 2, 24) + line("payments ", 3, 32)
	keys, err := parseSecrets("f", text)
	if err != nil || len(keys) != 2 || len(keys[""]) != 1 || len(keys["payments"]) != 2 ||
		keys["payments"][0][0] != 2 || keys["payments"][1][0] != 3 {
		t.Errorf("%v, %v", keys, err)
	}
	for _, bad := range []string{
		"", "# none\n", line("", 1, 23), line("a.b ", 1, 32), line("a b ", 1, 32), "payments\n",
		"payments " + line("", 1, 32)[6:], strings.TrimSuffix(line("", 1, 32), "=\n"),
	} {
		if keys, err := parseSecrets("f", bad); err == nil || strings.Contains(err.Error(), "AQEB") {
			t.Errorf("%q: %v, %v", bad, keys, err)
		}
	}
}

// TestEachWebhookGetsASecretOfItsOwn at the first start; one that is added later needs one.
func TestEachWebhookGetsASecretOfItsOwn(t *testing.T) {
	v := &serving{data: filepath.Join(t.TempDir(), "data")}
	both := map[string]string{"default": "https://a.example", "payments": "https://b.example"}
	keys, err := v.webhookKeys(both)
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(keys)), []string{"default", "payments"}) ||
		bytes.Equal(keys["default"][0], keys["payments"][0]) {
		t.Fatalf("%v, %v", keys, err)
	}
	again, err := v.webhookKeys(both)
	if err != nil || !bytes.Equal(again["payments"][0], keys["payments"][0]) {
		t.Errorf("the next start: %v, %v", again, err)
	}
	both["travel"] = "https://c.example"
	if _, err := v.webhookKeys(both); err == nil || !strings.Contains(err.Error(), "hook travel") {
		t.Errorf("a hook without a secret: %v", err)
	}
	v.secret = filepath.Join(t.TempDir(), "shared")
	if err := os.WriteFile(v.secret, []byte(line("", 1, 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	if shared, err := v.webhookKeys(both); err != nil || len(shared[""]) != 1 {
		t.Errorf("a secret for all: %v, %v", shared, err)
	}
	if none, err := v.webhookKeys(nil); none != nil || err != nil {
		t.Errorf("without webhooks: %v, %v", none, err)
	}
}
