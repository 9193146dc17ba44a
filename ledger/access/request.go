package access

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Request is what is asked about users on api.ServerSubject: user.add takes all of User,
// user.rotate its Tenant, Name, Key and Expires, user.rm its Tenant and Name, user.ls nothing,
// user.tokens its Tenant and Name, and user.revoke Token and Unseen beside these.
type Request struct {
	User
	Token  string `json:"token,omitempty"`  // id of the token that is revoked
	Unseen bool   `json:"unseen,omitempty"` // also if it was not shown to the server yet
}

// Answer answers a Request. No answer has a secret: a key is made where its seed is kept.
type Answer struct {
	Users  []User  `json:"users,omitempty"`  // all of them, or the one that was added or changed
	Tokens []Token `json:"tokens,omitempty"` // of one user
	// Used is when users were last seen to use their keys, by ID and to the minute.
	Used map[string]time.Time `json:"used,omitempty"`
	// Servers and CA are what the credentials of a user need beside its seed.
	Servers string `json:"server,omitempty"`
	CA      string `json:"ca,omitempty"`
	Door    string `json:"door,omitempty"`
	// Stale says why the file of users is not read: Users are those of before.
	Stale string `json:"stale,omitempty"`

	Error string `json:"error,omitempty"`
	Field string `json:"field,omitempty"` // of the request, where it is what is wrong
	Want  string `json:"want,omitempty"`  // what would be right
}

// Serve carries out one request on the users of a server; tenants are those that it serves,
// nil: it runs elsewhere.
func (d *Directory) Serve(verb string, body []byte, tenants []string) Answer {
	var r Request
	if len(body) > 0 {
		if err := ledger.ReadRequest(body, &r, "request"); err != nil {
			return failed(err)
		}
	}
	var err error
	switch verb {
	case api.UserAdd:
		r.Created = time.Now().UTC().Truncate(time.Second)
		if err = checkNew(r.User, tenants); tenants == nil {
			err = checkFile(r.User)
		}
		if err == nil {
			err = d.Add(r.User)
		}
	case api.UserRotate:
		if err = d.checkRotate(r.User, time.Now()); err == nil {
			r.User, err = d.Rotate(r.Tenant, r.Name, r.Key, r.Expires)
		}
	case api.UserRm:
		if r.Role = Local; r.Tenant == AllTenants && r.Name == LocalUser {
			err = ledger.Refuse("name", "it is the user that runs the server",
				"another user; it gets a new key at the next start without its file")
		} else {
			err = d.Remove(r.Tenant, r.Name)
		}
	case api.UserTokens, api.UserRevoke:
		return d.serveTokens(verb, r, tenants)
	case api.UserLs:
		answer := Answer{}
		if _, err := d.Refresh(); err != nil {
			answer.Stale = err.Error()
		}
		answer.Users, answer.Used = d.Users(), d.LastUses()
		return answer
	default:
		err = ledger.Refuse("verb", verb+" is none", "user.add, user.ls, user.rotate, "+
			"user.rm, user.tokens or user.revoke")
	}
	if err != nil {
		return failed(err)
	}
	return Answer{Users: []User{r.User}}
}

// serveTokens carries out what is asked about the tokens of a user.
func (d *Directory) serveTokens(verb string, r Request, tenants []string) Answer {
	if tenants == nil { // no door asks this directory
		return failed(ledger.Refuse("users", "they are those of servers that run elsewhere, which "+
			"take no token", "the users of an embedded server"))
	}
	if verb == api.UserRevoke {
		u, err := d.Revoke(r.Tenant, r.Name, r.Token, r.Unseen, time.Now())
		if err != nil {
			return failed(err)
		}
		return Answer{Users: []User{u}}
	}
	all, err := d.Tokens(r.Tenant, r.Name)
	if err != nil {
		return failed(err)
	}
	return Answer{Tokens: all}
}

// LocalUser is the name of the user that an embedded server makes at its first start.
const LocalUser = "local"

// checkNew refuses a user that could never get in, or is not for a client.
func checkNew(u User, tenants []string) error {
	switch {
	case !slices.Contains(Roles(), u.Role):
		return ledger.Refuse("role", fmt.Sprintf("%.80q is no role", u.Role),
			rolesText(RolesToAdd(false)))
	case u.Role == Local || !u.Role.client():
		return ledger.Refuse("role", string(u.Role)+" is not for users of an embedded server",
			rolesText(RolesToAdd(false)))
	case u.Expired(u.Created):
		return ledger.Refuse("expires", "it has passed", "a time to come")
	case u.Tenant != AllTenants && !slices.Contains(tenants, u.Tenant):
		return ledger.Refuse("tenant", "this server does not serve it, or it was erased",
			"one that sagenbaum tenant ls lists")
	}
	return nil
}

// checkFile is checkNew for users of servers that run elsewhere.
func checkFile(u User) error {
	switch {
	case !slices.Contains(Roles(), u.Role):
		return ledger.Refuse("role", fmt.Sprintf("%.80q is no role", u.Role),
			rolesText(RolesToAdd(true)))
	case u.Role == Local:
		return ledger.Refuse("role", "local is the user that runs an embedded server",
			"operator, of all tenants")
	case u.Expired(u.Created):
		return ledger.Refuse("expires", "it has passed", "a time to come")
	}
	return nil
}

// checkRotate refuses a new key for a user whose time is over: it would be refused, too.
func (d *Directory) checkRotate(r User, now time.Time) error {
	u, err := d.Find(r.Tenant, r.Name)
	if err != nil {
		return err
	}
	switch {
	case !r.Expires.IsZero() && r.Expired(now):
		return ledger.Refuse("expires", "it has passed", "a time to come")
	case r.Expires.IsZero() && u.Expired(now):
		return ledger.Refuse("expires", "the user expired at "+u.Expires.Format(time.RFC3339)+
			", and its new key would be refused as well", "a time to come")
	}
	return nil
}

func failed(err error) Answer {
	answer := Answer{Error: err.Error()}
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		answer.Error, answer.Field, answer.Want = refused.Problem, refused.Field, refused.Want
	}
	return answer
}
