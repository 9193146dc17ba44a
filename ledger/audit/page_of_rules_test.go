package audit_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/audit"
)

var update = flag.Bool("update", false, "write the page of rules")

const pageOfRules = "../../docs/rules.md"

// TestThePageOfRulesIsCurrent: docs/rules.md lists the clauses that the code asks, no more
// and no others. With -update it is written.
func TestThePageOfRulesIsCurrent(t *testing.T) {
	page := writePage()
	if *update {
		if err := os.WriteFile(pageOfRules, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(pageOfRules)
	if err != nil || string(have) != page {
		t.Fatalf("%s is not what the table says (%v); run: go test ./ledger/audit -run PageOfRules -update",
			pageOfRules, err)
	}
}

func writePage() string {
	var b strings.Builder
	b.WriteString(`# Rules

What the [audit](audit.md) asks of every record, rule by rule. Each rule has clauses with names that
stay; a finding names its clause. This page is written from the table in ledger/audit.

A record that breaks a clause changes nothing: it is refused, or void if a holder wrote it. A void
record is a violation only if it was right at no place up to which its holder may have read. A
clause marked with * is about records that count: one that breaks it is a violation in any case.
`)
	for _, rule := range audit.Rules() {
		wrapped(&b, "\n## "+rule.ID+"\n\n", rule.Sentence)
		if rule.Here != "" {
			wrapped(&b, "\n", "Here: "+rule.Here+".")
		}
		if rule.Elsewhere != "" {
			wrapped(&b, "\n", "Elsewhere: "+rule.Elsewhere+".")
		}
		first := "\n"
		for _, c := range audit.Clauses() {
			if !strings.HasPrefix(c.ID, rule.ID+".") {
				continue
			}
			star := ""
			if !c.Voids {
				star = " *"
			}
			wrapped(&b, first+"- ", "`"+c.ID+"`"+star+": "+c.Says)
			first = ""
		}
	}
	return b.String()
}

// wrapped writes words in lines of at most 100 columns.
func wrapped(b *strings.Builder, before, text string) {
	b.WriteString(before)
	room := 98
	for i, word := range strings.Fields(text) {
		switch room -= len(word) + 1; {
		case i == 0:
		case room < 0:
			b.WriteString("\n")
			if strings.HasSuffix(before, "- ") {
				b.WriteString("  ")
			}
			room = 97 - len(word)
		default:
			b.WriteString(" ")
		}
		b.WriteString(word)
	}
	b.WriteString("\n")
}
