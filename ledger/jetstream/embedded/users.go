package embedded

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// User is someone who may connect. With Publish or Subscribe set, those
// subjects are all that the user may use, beside an inbox of its own under
// InboxPrefix (nats.CustomInboxPrefix). No one may answer wherever a request says: who
// answers needs the subject of the replies, as reply.default.>.
type User struct {
	Name      string
	Password  string   // plain, or bcrypt as `nats server passwd` makes it
	Publish   []string // as in saga.default.agent.a1.>
	Subscribe []string // as in undo.default.git.>
}

// InboxPrefix is the prefix of a restricted user's inboxes, so that no one reads
// another one's replies.
func InboxPrefix(user string) string { return "_INBOX_" + user }

func checkUsers(users []User) error {
	seen := map[string]bool{}
	for i, u := range users {
		field := fmt.Sprintf("users[%d]", i)
		switch {
		case !ledger.ValidToken(u.Name) || seen[u.Name]:
			return ledger.Refuse(field+".name", fmt.Sprintf("%q is no name or not unique", u.Name),
				"1 to 64 letters, digits, '-' or '_'")
		case u.Password == "":
			return ledger.Refuse(field+".password", "empty", "a password")
		}
		seen[u.Name] = true
		for _, subject := range append(append([]string(nil), u.Publish...), u.Subscribe...) {
			if !natsd.IsValidSubject(subject) {
				return ledger.Refuse(field, fmt.Sprintf("%q is no subject", subject),
					"as in saga.default.agent.a1.>")
			}
		}
	}
	return nil
}

func natsUsers(users []User) []*natsd.User {
	all := make([]*natsd.User, 0, len(users)+1)
	for _, u := range users {
		user := &natsd.User{Username: u.Name, Password: u.Password}
		if len(u.Publish)+len(u.Subscribe) > 0 {
			// Allow-lists only, and no Response: what a file lists is all that a user may
			// publish, and replies have subjects that it can list.
			user.Permissions = &natsd.Permissions{
				Publish: &natsd.SubjectPermission{Allow: orNothing(u.Publish)},
				Subscribe: &natsd.SubjectPermission{
					Allow: append([]string{InboxPrefix(u.Name) + ".>"}, u.Subscribe...)},
			}
		}
		all = append(all, user)
	}
	return all
}

// orNothing keeps an empty allow-list from allowing everything.
func orNothing(subjects []string) []string {
	if len(subjects) == 0 {
		return []string{"_NOTHING"}
	}
	return subjects
}

// ReadUsers reads a file of users. It must be readable by its owner only.
func ReadUsers(path string) ([]User, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read users: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		return nil, ledger.Refuse("users", fmt.Sprintf("others may read %s (%v)", path,
			info.Mode().Perm()), "mode 0600")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read users: %w", err)
	}
	return ParseUsers(data)
}

// ParseUsers reads one user per line: a name, a password, then any number of
// pub=<subject> and sub=<subject>; a user with neither may do everything.
//
//	# name   password
//	operator $2a$11$3kFn...
//	a1       s3cret        pub=saga.default.agent.a1.>
//	worker1  s4cret        sub=undo.default.> pub=reply.default.> pub=saga.default.worker.worker1
func ParseUsers(data []byte) ([]User, error) {
	var users []User
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		field := fmt.Sprintf("users line %d", n)
		if len(fields) < 2 {
			return nil, ledger.Refuse(field, "no password",
				"name password [pub=subject] [sub=subject]")
		}
		user := User{Name: fields[0], Password: fields[1]}
		for _, f := range fields[2:] {
			key, subject, _ := strings.Cut(f, "=")
			switch key {
			case "pub":
				user.Publish = append(user.Publish, subject)
			case "sub":
				user.Subscribe = append(user.Subscribe, subject)
			default:
				return nil, ledger.Refuse(field, fmt.Sprintf("%q", f), "pub=subject or sub=subject")
			}
		}
		users = append(users, user)
	}
	if err := lines.Err(); err != nil {
		return nil, ledger.Refuse("users", err.Error(), "lines of text")
	}
	if len(users) == 0 {
		return nil, ledger.Refuse("users", "no one", "at least one user")
	}
	return users, checkUsers(users)
}
