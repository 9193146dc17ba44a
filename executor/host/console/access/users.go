package access

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// User is a line of the file of users.
type User struct {
	Name    string
	Grants  Grants    // one, in a file
	Expires time.Time // zero: never
	token   hash
}

// NewUser makes a user with this token, of at least TokenBytesMin bytes. The error is a
// *ledger.Refused.
func NewUser(name, token string, grant Grant, expires time.Time) (User, error) {
	if !ledger.ValidToken(name) {
		return User{}, ledger.Refuse("name", fmt.Sprintf("%q is no name", name),
			ledger.TokenWanted)
	}
	if len(token) < TokenBytesMin || len(token) > tokenBytesMax {
		return User{}, ledger.Refuse("token", "too short to be safe, or too long",
			fmt.Sprintf("%d to %d bytes", TokenBytesMin, tokenBytesMax))
	}
	expires = expires.UTC().Truncate(time.Second)
	return User{Name: name, Grants: Grants{grant}, Expires: expires, token: newHash(token)}, nil
}

// String is the user's line.
func (u User) String() string {
	line := u.Name
	for _, g := range u.Grants {
		line += " role=" + g.Role.String() + " tenants=" + strings.Join(g.Tenants, ",")
	}
	if !u.Expires.IsZero() {
		line += " expires=" + u.Expires.Format(time.RFC3339)
	}
	return line + " token=" + u.token.String()
}

// OldForm reports whether the user's line names no role: it is an operator of all tenants.
func (u User) OldForm() bool { return u.token.oldForm }

func (u User) expired(now time.Time) bool { return !u.Expires.IsZero() && !now.Before(u.Expires) }

func (u User) equal(other User) bool {
	return u.Name == other.Name && u.Expires.Equal(other.Expires) && u.token == other.token &&
		u.Grants.equal(other.Grants)
}

// ParseUsers reads one user a line:
//
//	NAME role=ROLE tenants=*|TENANT,... [expires=DATE|TIME] token=$argon2id$...
//
// or, as before there were roles, a name and a token or sha256: and the hex digits of its hash.
// The error is a *ledger.Refused that names the line, and never a token.
func ParseUsers(data []byte) (list []User, err error) {
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		where := fmt.Sprintf("users line %d", n)
		if name := fields[0]; !ledger.ValidToken(name) || seen[name] {
			return nil, ledger.Refuse(
				where, fmt.Sprintf("%q is no name, or there twice", name),
				ledger.TokenWanted+", each once",
			)
		}
		u, err := parseUser(fields)
		var refused *ledger.Refused
		if errors.As(err, &refused) {
			return nil, ledger.Refuse(where, refused.Field+": "+refused.Problem, refused.Want)
		}
		seen[u.Name] = true
		list = append(list, u)
	}
	if err := lines.Err(); err != nil {
		return nil, ledger.Refuse("users", err.Error(), "lines of text")
	}
	if len(list) == 0 {
		return nil, ledger.Refuse("users", "none", "at least one user")
	}
	return list, nil
}

func parseUser(fields []string) (User, error) {
	if len(fields) < 2 || !strings.HasPrefix(fields[1], "role=") {
		return oldUser(fields)
	}
	u, grant := User{Name: fields[0]}, Grant{}
	seen := map[string]bool{}
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		var err error
		switch {
		case seen[key]:
			err = ledger.Refuse(key, "there twice", "each once")
		case key == "role":
			grant.Role, err = ParseRole(value)
		case key == "tenants":
			grant.Tenants, err = ParseTenants(value)
		case key == "expires":
			u.Expires, err = ParseExpiry(value)
		case key == "token":
			u.token, err = parseHash(value)
		default:
			err = ledger.Refuse("line", "it has a word that means nothing here",
				"role=, tenants=, expires= and token=")
		}
		if err != nil {
			return User{}, err
		}
		seen[key] = true
	}
	for _, key := range []string{"role", "tenants", "token"} {
		if !seen[key] {
			return User{}, ledger.Refuse(key, "missing", "role=, tenants= and token=")
		}
	}
	u.Grants = Grants{grant}
	return u, nil
}

// ParseExpiry reads a time, or a date, whose first moment in UTC it is. The error is a
// *ledger.Refused.
func ParseExpiry(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	if err != nil {
		return time.Time{}, ledger.Refuse("expires", "it is no time",
			"2027-01-31, or 2027-01-31T18:00:00Z")
	}
	if _, err := ledger.InstantNs("expires", at); err != nil {
		return time.Time{}, err
	}
	return at.UTC(), nil
}

func oldUser(fields []string) (User, error) {
	if len(fields) != 2 {
		return User{}, ledger.Refuse("line", fmt.Sprintf("%d words", len(fields)),
			"NAME role=ROLE tenants=* token=HASH, or a name and a token")
	}
	u := User{Name: fields[0], Grants: Grants{{Operator, []string{Everywhere}}}}
	digits, hashed := strings.CutPrefix(fields[1], "sha256:")
	sum, err := hex.DecodeString(digits)
	switch {
	case hashed && (err != nil || len(sum) != sha256.Size):
		return User{}, ledger.Refuse("token", "what follows sha256: is no hash", "64 hex digits")
	case hashed:
		u.token = hash{sum: string(sum), oldForm: true}
	case len(fields[1]) < TokenBytesMin:
		return User{}, ledger.Refuse("token", "too short to be safe",
			fmt.Sprintf("at least %d bytes", TokenBytesMin))
	default:
		plain := sha256.Sum256([]byte(fields[1]))
		u.token = hash{sum: string(plain[:]), oldForm: true}
	}
	return u, nil
}

// ReadUsers reads a file of users, which only its owner may read. Errors: *ledger.Refused for
// what is in it and for its mode; otherwise what the file said.
func ReadUsers(path string) ([]User, error) {
	data, err := readUsers(path)
	if err != nil {
		return nil, err
	}
	return ParseUsers(data)
}

// readUsers reads a file of users, which only its owner may read.
func readUsers(path string) ([]byte, error) {
	data, err := access.ReadOwn("users", path)
	var refused *ledger.Refused
	if err != nil && !errors.As(err, &refused) {
		err = fmt.Errorf("cannot read the console's users: %w", err)
	}
	return data, err
}

// usersHead begins a file of users.
const usersHead = `# Who may do what in the console, one a line (docs/guide/console.md):
# NAME role=reader|operator|admin tenants=*|TENANT,... [expires=DATE] token=HASH
`

// makeUsers makes a file with one admin of all tenants, and beside it NAME.token, which has the
// name and the token, for that person.
func makeUsers(path, name string) error {
	token := Secret()
	u, err := NewUser(name, token, Grant{Admin, []string{Everywhere}}, time.Time{})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of the console's users: %w", err)
	}
	// The token first: a file of users without it would let no one in.
	kept := filepath.Join(filepath.Dir(path), name+".token")
	if err := os.Remove(kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot keep a token for the console: %w", err)
	}
	if err := makeOwn(kept, name+" "+token+"\n"); err != nil {
		return err
	}
	return makeOwn(path, usersHead+u.String()+"\n")
}

// makeOwn makes a file that only its owner may read, and that was not there.
func makeOwn(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot keep the console's users: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot keep the console's users: %w", err)
	}
	return nil
}

// WriteUsers puts what change makes of a file of users in its place, at once: a server that
// reads it meanwhile sees the one or the other. Comments and lines stay as change leaves them.
// A file that is not there is made. What change returns must be readable.
func WriteUsers(path string, change func(lines []string) ([]string, error)) error {
	data, err := readUsers(path)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte(usersHead), nil
	}
	if err != nil {
		return err
	}
	lines, err := change(strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"))
	if err != nil {
		return err
	}
	text := strings.Join(lines, "\n") + "\n"
	if _, err := ParseUsers([]byte(text)); err != nil {
		return err
	}
	next := path + ".next"
	if err := makeOwn(next, text); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return errors.Join(fmt.Errorf("cannot keep the console's users: %w", err), os.Remove(next))
	}
	return nil
}
