package access_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/access"
)

const pageOfSecurity = "../../docs/security.md"

// TestThePageOfSecurityHasTheTable: the table of roles in docs/security.md is that of the code, row by
// row, and so are the questions that read. With -update it is written.
func TestThePageOfSecurityHasTheTable(t *testing.T) {
	page, err := os.ReadFile(pageOfSecurity)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(page), "\n| role | publishes |")
	_, rest, ends := strings.Cut(after, "\n## ")
	if !found || !ends {
		t.Fatalf("%s has no table of roles, or nothing after it", pageOfSecurity)
	}
	want := before + "\n" + tableOfRoles() + "\n## " + rest
	if *update {
		if err := os.WriteFile(pageOfSecurity, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Fatalf("%s is not what the table says; run: go test ./ledger/access -run PageOfSecurity -update",
			pageOfSecurity)
	}
}

// option is what a user of a role may be added with, and more may then.
type option struct {
	flag string
	add  func(u *access.User)
}

var everywhere = option{"--all-tenants", func(u *access.User) { u.Tenant = access.AllTenants }}

var optionsOf = map[access.Role][]option{
	access.Agent: {{"--ask CAPABILITY", func(u *access.User) { u.Capabilities = []string{"CAPABILITY"} }},
		{"--run", func(u *access.User) { u.Run = true }}},
	access.Auditor:  {everywhere},
	access.Operator: {everywhere, {"--reveal", func(u *access.User) { u.Reveal = true }}},
	access.Host:     {{"--provision", func(u *access.User) { u.Provision = true }}},
}

// TestThePageHasEveryOption: a user with all options of its role on the page may do as much as the
// widest of the role.
func TestThePageHasEveryOption(t *testing.T) {
	for _, role := range append(access.Roles(), access.Door) {
		u := exampleOf(role)
		p := u.Permissions()
		for _, o := range optionsOf[role] {
			with := u
			if o.add(&with); with.Tenant == u.Tenant {
				p.Publish, p.Subscribe = append(p.Publish, with.Permissions().Publish...),
					append(p.Subscribe, with.Permissions().Subscribe...)
			}
		}
		widest, ok := access.Widest(u.Account(), u.Name, role)
		if !ok {
			continue // local and door: no one is added with them
		}
		if len(widest.Capabilities) > 0 {
			widest.Capabilities = []string{"CAPABILITY"}
		}
		if more := widest.Permissions().Wider(p); len(more) > 0 {
			t.Errorf("role %s has on no page: %v", role, more)
		}
	}
}

// exampleOf is user N of a role, of tenant T or of all.
func exampleOf(role access.Role) access.User {
	u := access.User{Name: "N", Role: role, Tenant: "T"}
	switch role {
	case access.Local, access.Host, access.Provisioner, access.System, access.Callout:
		u.Tenant = access.AllTenants
	case access.Worker:
		u.Capabilities = []string{"CAPABILITY"}
	}
	return u
}

func tableOfRoles() string {
	reads := access.User{Name: "N", Role: access.Auditor, Tenant: "T"}.Permissions().Publish
	reads = slices.DeleteFunc(reads, func(s string) bool { return !strings.HasPrefix(s, "query.T.") })
	var b strings.Builder
	b.WriteString("| role | publishes | subscribes, besides `_INBOX.N.>` |\n|---|---|---|\n")
	for _, role := range append(access.Roles(), access.Door) {
		u := exampleOf(role)
		base := u.Permissions()
		publishes, subscribes := []string{subjects(base.Publish, reads)}, []string{subjects(own(base.Subscribe), reads)}
		for _, o := range optionsOf[role] {
			with := u
			o.add(&with)
			p := with.Permissions()
			known := func(of []string) func(string) bool {
				return func(s string) bool {
					return slices.ContainsFunc(of, func(k string) bool {
						return k == s || with.Tenant != u.Tenant && everyTenant(k) == s
					})
				}
			}
			if more := subjects(slices.DeleteFunc(p.Publish, known(base.Publish)), reads); more != "" {
				publishes = append(publishes, "with `"+o.flag+"`: "+more)
			}
			if more := subjects(slices.DeleteFunc(own(p.Subscribe), known(base.Subscribe)), reads); more != "" {
				subscribes = append(subscribes, "with `"+o.flag+"`: "+more)
			}
		}
		row := "| `" + string(role) + "` | " + cell(publishes) + " | " + cell(subscribes) + " |\n"
		b.WriteString(strings.ReplaceAll(row, "|  |", "| |"))
	}
	line := "*What reads* of `query.T` is"
	for i, s := range reads {
		word := " `" + strings.TrimPrefix(s, "query.T.") + "`" + map[bool]string{true: ".", false: ","}[i == len(reads)-1]
		if len(line)+len(word) > 100 {
			b.WriteString("\n" + line)
			line, word = "", strings.TrimSpace(word)
		}
		line += word
	}
	b.WriteString("\n" + line + "\n")
	return b.String()
}

func cell(parts []string) string {
	return strings.TrimSpace(strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; "))
}

// own leaves the inboxes out that everyone has.
func own(subscribes []string) []string {
	return slices.DeleteFunc(slices.Clone(subscribes), func(s string) bool { return s == "_INBOX.N.>" })
}

// everyTenant is a subject of tenant T in all tenants.
func everyTenant(subject string) string {
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		if token == "T" {
			tokens[i] = access.AllTenants
		}
	}
	return strings.Join(tokens, ".")
}

// subjects lists subjects as text. All that read are one of it, and so are those of JetStream.
func subjects(all, reads []string) string {
	var list, calls []string
	whole := len(all) > len(reads) && !slices.ContainsFunc(reads, func(s string) bool { return !slices.Contains(all, s) })
	for _, s := range all {
		call, isCall := strings.CutPrefix(s, "$JS.API.")
		subject, group, grouped := strings.Cut(s, " ")
		switch {
		case whole && slices.Contains(reads, s):
		case isCall:
			calls = append(calls, "`"+call+"`")
		case grouped:
			list = append(list, "`"+subject+"` in queue group `"+group+"`")
		default:
			list = append(list, "`"+s+"`")
		}
	}
	if whole {
		list = append([]string{"*what reads* of `query.T`"}, list...)
	}
	if len(calls) > 0 {
		list = append(list, "of `$JS.API`: "+strings.Join(calls, ", "))
	}
	return strings.Join(list, ", ")
}
