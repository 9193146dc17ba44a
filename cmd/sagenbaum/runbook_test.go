package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each alert has its section in the runbook, and leads there; each section is of an
// alert, and says a command; each command there is one.
func TestTheRunbookAnswersEachAlert(t *testing.T) {
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rules, runbook := read("deploy", "prometheus", "alerts.yml"), read("docs", "runbook.md")
	var alerts []string
	for _, rule := range strings.Split(rules, "- alert: ")[1:] {
		name, _, _ := strings.Cut(rule, "\n")
		alerts = append(alerts, name)
		if !strings.Contains(rule, "runbook: docs/runbook.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("%s does not lead to its section", name)
		}
		for _, wanted := range []string{"severity: ", "summary: ", "description: "} {
			if !strings.Contains(rule, wanted) {
				t.Errorf("%s has no %s", name, wanted)
			}
		}
	}
	if len(alerts) < 10 {
		t.Fatalf("only %d alerts are found", len(alerts))
	}
	for _, section := range strings.Split(runbook, "\n## ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		if i := slices.Index(alerts, name); i >= 0 {
			alerts = slices.Delete(alerts, i, i+1)
		} else {
			t.Errorf("docs/runbook.md has a section %s of no alert", name)
		}
		if len(commandLines(body)) == 0 {
			t.Errorf("section %s has no command", name)
		}
	}
	if len(alerts) > 0 {
		t.Errorf("docs/runbook.md has no section for %v", alerts)
	}
	lines := commandLines(runbook)
	for _, quoted := range regexp.MustCompile("`(sagenbaum [^`]+)`").FindAllStringSubmatch(runbook, -1) {
		lines = append(lines, quoted[1])
	}
	for _, line := range lines {
		if err := parses(t, line); err != nil {
			t.Errorf("docs/runbook.md: %s: %v", line, err)
		}
	}
}
