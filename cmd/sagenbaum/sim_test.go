package main

import (
	"strings"
	"testing"
)

func TestSimRunsAWorldAndShowsIt(t *testing.T) {
	one := finished(t, sagenbaum(t, "sim", "--seed", "7", "--trace"))
	one.wants(t, "one world", exitGood)
	for _, text := range []string{"holds term 1", "plan_opened", ": effective", "! crash: dies", "no rule is broken"} {
		if !strings.Contains(one.stdout, text) {
			t.Errorf("the trace does not show %q", text)
		}
	}
	view := decoded[simView](t, finished(t, sagenbaum(t, "sim", "--seed", "7", "-o", "json")))
	if !strings.Contains(one.stdout, view.TraceHash) || view.Options != "seed=7" || view.Records == 0 {
		t.Errorf("as JSON: %+v", view)
	}
	many := decoded[simsView](t, finished(t, sagenbaum(t, "sim", "--seed", "1", "--seeds", "20", "-o", "json")))
	if many.Worlds != 20 || len(many.Failures) != 0 || len(many.Faults) == 0 {
		t.Errorf("many: %+v", many)
	}
}

func TestSimRefusesWhatMakesNoSense(t *testing.T) {
	for _, args := range [][]string{{"--without", "crush"}, {"--drop", "9"}, {"--hosts", "-1"}, {"--seeds", "0"}, {"--seeds", "2", "--trace"}} {
		finished(t, sagenbaum(t, append([]string{"sim"}, args...)...)).wants(t, strings.Join(args, " "), exitUsage, "next:")
	}
}
