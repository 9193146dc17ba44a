package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// openTenants starts a server on a folder, with its control stream.
func openTenants(t *testing.T, dir string) (*jetstream.Tenants, func()) {
	t.Helper()
	server, err := embedded.Start(embedded.Config{Dir: dir, Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	tenants, err := jetstream.NewTenants(conn, 1)
	if err != nil {
		t.Fatal(err)
	}
	return tenants, func() { conn.Close(); server.Close() }
}

// TestTheControlStreamIsFollowed: what is there comes first, then that this is all, then what is
// stored meanwhile, each once and in order; after a restart all of it.
func TestTheControlStreamIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tenants, stop := openTenants(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	changes := make(chan jetstream.TenantChange)
	go func() {
		for c := range tenants.Follow(ctx) {
			changes <- c
		}
		close(changes)
	}()
	if c := <-changes; c.Tenant != "" {
		t.Errorf("of an empty stream: %+v", c)
	}
	put := func(tenant, value string, after uint64) uint64 {
		t.Helper()
		sequence, err := tenants.Put(ctx, tenant, []byte(value), after)
		if err != nil {
			t.Fatal(err)
		}
		return sequence
	}
	first := put("a", "1", 0)
	put("b", "2", 0)
	second := put("a", "3", first)
	for i, want := range []string{"a=1", "b=2", "a=3"} {
		if c := <-changes; c.Tenant+"="+string(c.Value) != want || c.Sequence != uint64(i+1) {
			t.Errorf("%+v, want %s", c, want)
		}
	}
	for _, after := range []uint64{0, first, second + 1} {
		if _, err := tenants.Put(ctx, "a", []byte("4"), after); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("after %d: %v", after, err)
		}
	}
	if value, sequence, err := tenants.Get(ctx, "a"); string(value) != "3" || sequence != second || err != nil {
		t.Errorf("%s, %d, %v", value, sequence, err)
	}
	if value, sequence, err := tenants.Get(ctx, "c"); value != nil || sequence != 0 || err != nil {
		t.Errorf("%s, %d, %v", value, sequence, err)
	}
	cancel()
	if c, open := <-changes; open {
		t.Errorf("after its end: %+v", c)
	}
	stop()

	tenants, stop = openTenants(t, dir)
	defer stop()
	var seen []string
	for c := range tenants.Follow(t.Context()) {
		if c.Tenant == "" {
			break
		}
		seen = append(seen, fmt.Sprintf("%s=%s", c.Tenant, c.Value))
	}
	if want := []string{"a=1", "b=2", "a=3"}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

func TestTheControlStreamTakesNamesOnly(t *testing.T) {
	t.Parallel()
	tenants, stop := openTenants(t, t.TempDir())
	defer stop()
	for _, name := range []string{"", "a.b", "*", ">", "a b", strings.Repeat("x", 10_000)} {
		var refused *ledger.Refused
		if _, err := tenants.Put(t.Context(), name, []byte("1"), 0); !errors.As(err, &refused) || refused.Field != "tenant" {
			t.Errorf("put %.20q: %v", name, err)
		}
		if _, _, err := tenants.Get(t.Context(), name); !errors.As(err, &refused) || refused.Field != "tenant" {
			t.Errorf("get %.20q: %v", name, err)
		}
	}
}
