package console

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// operator is a person who may sign in.
type operator struct {
	name  string
	token [sha256.Size]byte // of the token
}

// readOperators reads the file of operators, which only its owner may read. One that is
// not there is made, with a fresh token for name.
func readOperators(path, name string) ([]operator, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeOperators(path, name); err != nil {
			return nil, err
		}
		info, err = os.Stat(path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the console's operators: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		return nil, ledger.Refuse(
			"operators", fmt.Sprintf("others may read %s (%v)", path, info.Mode().Perm()), "mode 0600",
		)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the console's operators: %w", err)
	}
	return parseOperators(data)
}

func makeOperators(path, name string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of the console's operators: %w", err)
	}
	text := "# Who may act in the console: a name and a token, or sha256: and the token's hash, " +
		"one a line.\n" + name + " " + secret() + "\n"
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot keep the console's operators: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot keep the console's operators: %w", err)
	}
	return nil
}

// parseOperators reads one operator a line: a name, and a token of at least
// tokenBytesMin bytes or "sha256:" and the 64 hex digits of its hash. The error is a
// *ledger.Refused that names the line and never a token.
func parseOperators(data []byte) (list []operator, err error) {
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		where := fmt.Sprintf("operators line %d", n)
		o := operator{name: fields[0]}
		switch {
		case len(fields) != 2:
			return nil, ledger.Refuse(where, fmt.Sprintf("%d words", len(fields)), "a name and a token")
		case !ledger.ValidToken(o.name) || seen[o.name]:
			return nil, ledger.Refuse(
				where, fmt.Sprintf("%q is no name, or there twice", o.name),
				"1 to 64 letters, digits, '-' or '_', each once",
			)
		}
		seen[o.name] = true
		digits, hashed := strings.CutPrefix(fields[1], "sha256:")
		sum, err := hex.DecodeString(digits)
		switch {
		case hashed && (err != nil || len(sum) != sha256.Size):
			return nil, ledger.Refuse(where, "what follows sha256: is no hash", "64 hex digits")
		case hashed:
			o.token = [sha256.Size]byte(sum)
		case len(fields[1]) < tokenBytesMin:
			return nil, ledger.Refuse(
				where, "the token is too short to be safe", fmt.Sprintf("at least %d bytes", tokenBytesMin),
			)
		default:
			o.token = sha256.Sum256([]byte(fields[1]))
		}
		list = append(list, o)
	}
	if err := lines.Err(); err != nil {
		return nil, ledger.Refuse("operators", err.Error(), "lines of text")
	}
	if len(list) == 0 {
		return nil, ledger.Refuse("operators", "none", "at least one operator")
	}
	return list, nil
}

// secret is 32 bytes of randomness as text.
func secret() string {
	var raw [32]byte
	rand.Read(raw[:]) // never fails, as crypto/rand documents
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// session is an operator who has signed in, in one browser.
type session struct {
	operator string
	csrf     string // that a form of this session carries
	ends     time.Time
}

// access knows who may act, and who has signed in.
type access struct {
	operators []operator
	cookie    string
	secure    bool

	tries    tries
	mu       sync.Mutex
	sessions map[[sha256.Size]byte]session // by hash of the cookie's value
}

// newAccess names the cookie for the port, because several consoles may share a host. With
// a certificate no page of another host, and none without a certificate, can set or get it.
func newAccess(operators []operator, port string, secure bool) *access {
	cookie := "sagenbaum_" + port
	if secure {
		cookie = "__Host-" + cookie
	}
	return &access{
		operators: operators, cookie: cookie, secure: secure,
		sessions: map[[sha256.Size]byte]session{},
	}
}

// tooMany says that a token was not looked at, and how long to wait.
type tooMany struct{ wait time.Duration }

func (e *tooMany) Error() string { return "too many tokens were shown" }

// seconds is the wait as Retry-After has it.
func (e *tooMany) seconds() string {
	return strconv.Itoa(int((e.wait + time.Second - 1) / time.Second))
}

// check returns the name that the token of a request belongs to, or "". It takes as long
// whichever operator it is, and whether it is one. The error is a *tooMany.
func (a *access) check(r *http.Request, now time.Time) (name string, err error) {
	from := address(r)
	if wait, ok := a.tries.begin(from, now); !ok {
		return "", &tooMany{wait}
	}
	if name = a.nameOf(r.PostFormValue("token")); name != "" {
		a.tries.right(from)
	}
	return name, nil
}

func (a *access) nameOf(token string) (name string) {
	sum := sha256.Sum256([]byte(token[:min(len(token), tokenBytesMax)]))
	for _, o := range a.operators {
		if subtle.ConstantTimeCompare(sum[:], o.token[:]) == 1 {
			name = o.name
		}
	}
	return name
}

// begin starts a session and sets its cookie.
func (a *access) begin(w http.ResponseWriter, name string, now time.Time) {
	value := secret()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.sessions) >= sessionsMax {
		a.dropOldest()
	}
	a.sessions[sha256.Sum256([]byte(value))] = session{
		operator: name, csrf: secret(), ends: now.Add(sessionTime),
	}
	http.SetCookie(w, &http.Cookie{
		Name: a.cookie, Value: value, Path: "/", MaxAge: int(sessionTime / time.Second),
		HttpOnly: true, Secure: a.secure, SameSite: http.SameSiteLaxMode,
	})
}

func (a *access) dropOldest() {
	var oldest [sha256.Size]byte
	var ends time.Time
	for id, s := range a.sessions {
		if ends.IsZero() || s.ends.Before(ends) {
			oldest, ends = id, s.ends
		}
	}
	delete(a.sessions, oldest)
}

// who is the session of a request; ok is false when there is none.
func (a *access) who(r *http.Request, now time.Time) (s session, ok bool) {
	cookie, err := r.Cookie(a.cookie)
	if err != nil {
		return session{}, false
	}
	id := sha256.Sum256([]byte(cookie.Value))
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok = a.sessions[id]; ok && now.After(s.ends) {
		delete(a.sessions, id)
		return session{}, false
	}
	return s, ok
}

// end ends the session of a request.
func (a *access) end(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(a.cookie); err == nil {
		a.mu.Lock()
		delete(a.sessions, sha256.Sum256([]byte(cookie.Value)))
		a.mu.Unlock()
	}
	http.SetCookie(
		w,
		&http.Cookie{
			Name: a.cookie, Path: "/", MaxAge: -1, HttpOnly: true, Secure: a.secure,
			SameSite: http.SameSiteLaxMode,
		},
	)
}

// genuine reports whether a form comes from a page of this session.
func (s session) genuine(r *http.Request) bool {
	return subtle.ConstantTimeCompare([]byte(r.PostFormValue("csrf")), []byte(s.csrf)) == 1
}

// local is where a sign-in leads back to: a path of this console, never elsewhere. A
// browser leaves tabs and line ends out of an address, and takes a backslash for a slash,
// so that nothing but the printable characters of an address passes.
func local(next string) string {
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") {
		return "/"
	}
	for i := range len(next) {
		if c := next[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return "/"
		}
	}
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil {
		return "/"
	}
	return next
}
