package serve

import (
	"crypto/x509"
	"net"
	"os"
	"testing"
)

// TestCredentialsNameADoorThatIsOneAddress: a token is sent to no wildcard.
func TestCredentialsNameADoorThatIsOneAddress(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	named := &x509.Certificate{DNSNames: []string{"localhost", "*.example.com", "door.example.com"}}
	for _, c := range []struct {
		http        string
		listens     net.IP
		certificate *x509.Certificate
		want        string
	}{
		{"127.0.0.1:0", net.IPv4(127, 0, 0, 1), nil, "http://127.0.0.1:4271"},
		{"localhost:0", net.IPv4(127, 0, 0, 1), nil, "http://localhost:4271"},
		{"[::1]:0", net.IPv6loopback, nil, "http://[::1]:4271"},
		{"0.0.0.0:0", net.IPv4zero, named, "https://door.example.com:4271"},
		{"[::]:0", net.IPv6zero, named, "https://door.example.com:4271"},
		{":0", net.IPv6zero, &x509.Certificate{}, "https://" + machine + ":4271"},
		{"agents.example.com:0", net.IPv4(10, 0, 0, 1), named, "https://agents.example.com:4271"},
	} {
		o := &opening{http: c.http}
		got := o.doorURL(&net.TCPAddr{IP: c.listens, Port: 4271}, c.certificate)
		if got != c.want {
			t.Errorf("--http %s: %s, want %s", c.http, got, c.want)
		}
	}
}
