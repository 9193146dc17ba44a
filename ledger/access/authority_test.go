package access_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
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

// A server that is named as the authority would replace it with a certificate that signs nothing.
func TestNoCertificateTakesTheAuthoritysFiles(t *testing.T) {
	dir := t.TempDir()
	authority, err := access.OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var refused *ledger.Refused
	for _, name := range []string{"ca", "CA"} {
		_, _, err := authority.Certificate(name, []string{"localhost"}, time.Now())
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "ca.pem")); err != nil || !bytes.Equal(text, authority.PEM) {
		t.Errorf("the authority is another one: %v", err)
	}
}
