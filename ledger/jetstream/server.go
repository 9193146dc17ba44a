package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// ServerVersionMin is the oldest server of line 2.12 that a ledger is kept on, and
// ServerVersions are all of them. Earlier ones of a line lack corrections of how the
// server keeps users to their permissions.
const (
	ServerVersionMin = "2.12.12"
	ServerVersions   = "2.12.12 or later of 2.12, 2.14.3 or later of 2.14, or 2.15.0 or later"
)

// versionsMin are the first version of each line that is supported. Of a line that is not
// there none is; the last entry is for all lines from there on.
var versionsMin = []version{{2, 12, 12, false}, {2, 14, 3, false}, {2, 15, 0, false}}

// version is that of a server. What comes before a release (2.15.0-RC.1) is older than it.
type version struct {
	major, minor, patch int
	before              bool
}

func (v version) compare(o version) int {
	return cmp.Or(cmp.Compare(v.major, o.major), cmp.Compare(v.minor, o.minor),
		cmp.Compare(v.patch, o.patch), precedes(v.before, o.before))
}

func precedes(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// parseVersion reads versions of the forms 2.15.2, v2.15.2, 2.15.0-RC.1, and 2.12.14-fips,
// which is a release; of what cannot be read nothing is supported.
func parseVersion(text string) (v version) {
	number, suffix, suffixed := strings.Cut(strings.TrimPrefix(text, "v"), "-")
	v.before = suffixed && suffix != "fips"
	parts := strings.Split(number, ".")
	if len(parts) != 3 {
		return version{}
	}
	for i, field := range []*int{&v.major, &v.minor, &v.patch} {
		var err error
		if *field, err = strconv.Atoi(parts[i]); err != nil {
			return version{}
		}
	}
	return v
}

// Supported reports whether a ledger may be kept on a server of a version.
func Supported(serverVersion string) bool {
	v := parseVersion(serverVersion)
	last := versionsMin[len(versionsMin)-1]
	for _, least := range versionsMin {
		if v.major == least.major && v.minor == least.minor {
			return v.compare(least) >= 0
		}
	}
	return v.compare(last) >= 0
}

// checkVersion refuses a server by its version.
func checkVersion(name, serverVersion string) error {
	if Supported(serverVersion) {
		return nil
	}
	problem := fmt.Sprintf("server %s is nats-server %s, which is too old", name, serverVersion)
	return ledger.Refuse("server", problem, ServerVersions)
}

// checkServer refuses a server that cannot hold a ledger.
func checkServer(conn *nats.Conn) error {
	if !conn.IsConnected() {
		return fmt.Errorf("cannot open a ledger: %w", nats.ErrDisconnected)
	}
	if err := checkVersion(conn.ConnectedServerName(), conn.ConnectedServerVersion()); err != nil {
		return err
	}
	if size := conn.MaxPayload(); size < MessageSizeMax {
		problem := fmt.Sprintf("the server takes messages of %d bytes", size)
		want := fmt.Sprintf("max_payload of at least %d", MessageSizeMax)
		return ledger.Refuse("max_payload", problem, want)
	}
	return nil
}

// strictWant says what to do about a server that is not strict.
const strictWant = `no "strict: false" in the jetstream block of any server (the default is true)`

// CheckStrict refuses a server whose JetStream takes requests with fields that it does not
// know (strict: false): then a message that is no request, and that someone else was made
// to publish to its API, may be one. Only the system account shows the setting; a client of
// the API sees it in the answer to such a request, which changes nothing. In a cluster the
// server answers that leads the tenant's stream, or all streams where there is none yet.
// Errors: *ledger.Refused; otherwise what the connection or JetStream said.
func CheckStrict(ctx context.Context, conn *nats.Conn, tenant string) error {
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	err := askStrict(ctx, conn, "$JS.API.STREAM.INFO."+StreamName(tenant))
	if errors.Is(err, js.ErrStreamNotFound) {
		err = askStrict(ctx, conn, "$JS.API.STREAM.NAMES")
	}
	if err != nil {
		return explain(err)
	}
	return nil
}

// StrictServers are those that were found strict. A strict server names the request that asks it as
// a warning in its log, and stays strict for as long as it runs: so it is asked once. The zero
// value knows of none.
type StrictServers struct {
	mu    sync.Mutex
	known map[string]bool
}

// Check is CheckStrict, but for a server that was asked before. leads says which server answers in
// a cluster, and since when, as far as the caller knows; durable is Config.DurableServer.
func (s *StrictServers) Check(
	ctx context.Context, conn *nats.Conn, tenant, durable, leads string,
) error {
	connected := conn.ConnectedServerId()
	if durable != "" && connected == durable {
		return nil // its settings are ours
	}
	name := connected + " " + leads
	s.mu.Lock()
	known := s.known[name]
	s.mu.Unlock()
	if known {
		return nil
	}
	err := CheckStrict(ctx, conn, tenant)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.known) >= strictKnownMax {
			clear(s.known)
		}
		if s.known == nil {
			s.known = map[string]bool{}
		}
		s.known[name] = true
	}
	return err
}

// strictKnownMax bounds what StrictServers remembers: leaders come and go.
const strictKnownMax = 1000

// oddRequest has a field that no server knows. A strict one names it in its log.
const oddRequest = `{"sagenbaum_asks_whether_unknown_fields_are_refused":true}`

// askStrict sends it.
func askStrict(ctx context.Context, conn *nats.Conn, subject string) error {
	reply, err := conn.RequestWithContext(ctx, subject, []byte(oddRequest))
	if err != nil {
		return err
	}
	var answer struct {
		Error *js.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return fmt.Errorf("cannot read the answer of JetStream: %w", err)
	}
	switch {
	case answer.Error == nil:
		problem := "JetStream takes requests with unknown fields, at least on one server"
		return ledger.Refuse("strict", problem, strictWant)
	case int(answer.Error.ErrorCode) == codeInvalidJSON:
		return nil
	}
	return answer.Error
}
