package mcp

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// listening are the options of a gateway with --listen.
func listening(t *testing.T) *options {
	t.Helper()
	o := new(options)
	flags := pflag.NewFlagSet("mcp", pflag.ContinueOnError)
	o.gatewayFlags(flags)
	if err := flags.Parse([]string{"--listen", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	return o
}

// Whoever sets the variable of the token wants one, also where a file that it comes from is empty.
func TestATokenThatIsEmptyIsRefused(t *testing.T) {
	for _, empty := range []string{"", " \n"} {
		t.Setenv(tokenVariable, empty)
		var f *cli.Failure
		_, err := listening(t).config()
		if !errors.As(err, &f) || f.Code != cli.ExitUsage || !strings.Contains(err.Error(), tokenVariable) {
			t.Errorf("%q: %v", empty, err)
		}
	}
	t.Setenv(tokenVariable, "secret\n")
	o := listening(t)
	if _, err := o.config(); err != nil || o.token != "secret" {
		t.Errorf("%q, %v", o.token, err)
	}
}

// A gateway says at its start who may call.
func TestAGatewaySaysWhoMayCall(t *testing.T) {
	for token, want := range map[string]string{
		"":       "warning: there is no token (SAGENBAUM_MCP_TOKEN): whoever reaches this address from this machine",
		"secret": "whoever brings the token",
	} {
		got := whoMayCall(token, "ann")
		if !strings.Contains(got, want) || !strings.Contains(got, "agent ann") || strings.Contains(got, "secret") {
			t.Errorf("token %q: it says %s", token, got)
		}
	}
}
