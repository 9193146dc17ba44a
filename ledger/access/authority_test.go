package access_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// A crash between a key and its certificate leaves an authority, and certificates, that work.
func TestAKeyWithoutItsCertificateIsMadeAgain(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	open := func() *access.Authority {
		t.Helper()
		a, err := access.OpenAuthority(dir, now)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	pair := func(a *access.Authority) {
		t.Helper()
		certFile, keyFile, err := a.Certificate("server", []string{"localhost"}, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			t.Error(err)
		}
	}
	first := open()
	pair(first)
	if again := open(); string(again.PEM) != string(first.PEM) {
		t.Error("a whole authority is made again")
	}
	if err := os.Remove(filepath.Join(dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	pair(open())
	other, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := access.WriteSecret(filepath.Join(dir, "server.key"), other); err != nil {
		t.Fatal(err)
	}
	pair(open())
}
