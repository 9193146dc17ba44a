package access

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Credentials are what a client needs to connect, in one file: the seed, in the form that
// NATS clients in all languages read, and a line of ours with the rest.
type Credentials struct {
	// JWT is the user's where an operator's account has issued it; empty: the server knows
	// the key of the seed.
	JWT  string `json:"-"`
	Seed []byte `json:"-"` // of an nkey
	// Servers are URLs with commas between them.
	Servers string `json:"server,omitempty"`
	Tenant  string `json:"tenant,omitempty"` // AllTenants: the client names one
	Name    string `json:"name,omitempty"`
	Role    Role   `json:"role,omitempty"`
	Inbox   string `json:"inbox,omitempty"` // prefix
	CA      string `json:"ca,omitempty"`    // PEM of the authority of the server's certificate
	Door    string `json:"door,omitempty"`  // URL of the door over HTTP
	Token   string `json:"token,omitempty"` // for that door; see Credentials.Sign
}

// NewCredentials makes a key for a user, whose Key becomes its public half, and the
// credentials that go with it.
func NewCredentials(u *User) (Credentials, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return Credentials{}, fmt.Errorf("cannot make a key: %w", err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return Credentials{}, fmt.Errorf("cannot make a key: %w", err)
	}
	if u.Key, err = pair.PublicKey(); err != nil {
		return Credentials{}, fmt.Errorf("cannot make a key: %w", err)
	}
	c := Credentials{Seed: seed, Tenant: u.Tenant, Name: u.Name, Role: u.Role, Inbox: u.Inbox()}
	if u.asksDoor() {
		c.Token, err = c.Sign(time.Time{})
	}
	return c, err
}

// Key is the public half of the seed; empty: it is no seed.
func (c Credentials) Key() string {
	pair, err := nkeys.FromSeed(c.Seed)
	if err != nil {
		return ""
	}
	key, err := pair.PublicKey()
	if err != nil {
		return ""
	}
	return key
}

// note begins the line of ours. It is none that a NATS client looks for.
const note = "# sagenbaum "

const advice = `# KEEP THIS FILE SECRET: who has it can do what its user may.
# Sagenbaum takes it by SAGENBAUM_CREDS=FILE or --creds FILE.
`

// Format is the text of a file of credentials; ParseCredentials reads it.
func (c Credentials) Format() ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("cannot format the credentials: %w", err)
	}
	text := advice + note + base64.StdEncoding.EncodeToString(body) + "\n"
	if c.JWT != "" {
		text += "-----BEGIN NATS USER JWT-----\n" + c.JWT + "\n------END NATS USER JWT------\n\n"
	}
	return fmt.Appendf(nil, "%s-----BEGIN USER NKEY SEED-----\n%s\n"+
		"------END USER NKEY SEED------\n", text, c.Seed), nil
}

// ParseCredentials reads a file of credentials, ours or one of other NATS tools, which says
// less. The error is a *ledger.Refused.
func ParseCredentials(text []byte) (c Credentials, err error) {
	const want = "a file that sagenbaum user add has written, or NATS credentials"
	for line := range strings.Lines(string(text)) {
		ours, ok := strings.CutPrefix(strings.TrimSpace(line), note)
		if !ok {
			continue
		}
		body, err := base64.StdEncoding.DecodeString(ours)
		if err == nil {
			err = json.Unmarshal(body, &c)
		}
		if err != nil {
			return c, ledger.Refuse("creds", "its line of Sagenbaum is damaged: "+err.Error(), want)
		}
	}
	if bytes.Contains(text, []byte("BEGIN NATS USER JWT")) {
		if c.JWT, err = nkeys.ParseDecoratedJWT(text); err != nil {
			return c, ledger.Refuse("creds", "its JWT is damaged: "+err.Error(), want)
		}
	}
	pair, err := nkeys.ParseDecoratedUserNKey(text)
	if err != nil {
		return c, ledger.Refuse("creds", "it has no seed of a user: "+err.Error(), want)
	}
	if c.Seed, err = pair.Seed(); err != nil {
		return c, ledger.Refuse("creds", err.Error(), want)
	}
	return c, nil
}

// ReadCredentials reads a file of credentials, which only its owner may be able to read.
func ReadCredentials(path string) (Credentials, error) {
	text, err := ReadSecret("creds", path)
	if err != nil {
		return Credentials{}, err
	}
	return ParseCredentials(text)
}

// othersOf are the modes that let others read a file. What systemd hands to a service as a
// credential may be shown as readable by the group: that is the entry of the service's own user
// in the access list (systemd.exec(5), LoadCredential=).
func othersOf(path string) fs.FileMode {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" && filepath.Dir(path) == dir {
		return 0o037
	}
	return 0o077
}

// ReadSecret is ReadOwn where the file must be there: every error is a *ledger.Refused.
func ReadSecret(field, path string) ([]byte, error) {
	text, err := ReadOwn(field, path)
	var refused *ledger.Refused
	if err != nil && !errors.As(err, &refused) {
		return nil, ledger.Refuse(field, err.Error(), "a file that is there and can be read")
	}
	return text, err
}

// secretMax bounds the files that ReadOwn reads, in bytes.
const secretMax = 4 << 20

// ReadOwn reads a file that only its owner may be able to read. The error is a
// *ledger.Refused, with field as its field, for one that others may read or that is too large;
// otherwise it is the file system's.
func ReadOwn(field, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&othersOf(path) != 0 && os.PathSeparator == '/' {
		return nil, ledger.Refuse(field, fmt.Sprintf("others may read %s (%v)", path,
			info.Mode().Perm()), "chmod 600 "+path)
	}
	text, err := io.ReadAll(io.LimitReader(f, secretMax+1))
	if err == nil && len(text) > secretMax {
		return nil, ledger.Refuse(field, path+" is too large",
			fmt.Sprintf("at most %d bytes of text", secretMax))
	}
	return text, err
}
