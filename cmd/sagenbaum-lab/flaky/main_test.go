package main

import (
	"strings"
	"testing"
)

func TestWhatASecondRunExcuses(t *testing.T) {
	for name, c := range map[string]struct {
		events string // "action package test" in each line; what follows a colon is output
		says   string // empty: nothing
		failed bool
	}{
		"all passed": {"start p\nrun p A\noutput p A: fine\npass p A\npass p", "", false},
		"failed for good": {"run p A\noutput p A: one\nfail p A\nfail p\nrun p A\noutput p A: two\nfail p A\nfail p",
			"", false},
		"passed in the second run": {
			"run p A\noutput p A: one\nfail p A\nfail p\nrun p A\noutput p A: two\npass p A\npass p",
			"\nFLAKY p A\none\n", false},
		"passed in the third run": {
			"run p A\noutput p A: one\nfail p A\nrun p A\noutput p A: two\nfail p A\nrun p A\npass p A\npass p",
			"\nFLAKY p A\none\n", false},
		"skipped in the second run": {"run p A\noutput p A: one\nfail p A\nfail p\nrun p A\nskip p A\npass p",
			"\nFLAKY p A\none\n", false},
		"a subtest": {"run p A\nrun p A/b\noutput p A/b: one\nfail p A/b\nfail p A\nfail p\n" +
			"run p A\nrun p A/b\npass p A/b\npass p A\npass p", "\nFLAKY p A\n\nFLAKY p A/b\none\n", false},
		"a package that failed by itself": {"start p\nrun p A\npass p A\noutput p: race detected\nfail p\n" +
			"start p\npass p", "\nFAILED p\nrace detected\n", true},
		"a test without an end": {"run p A\npass p A\nrun p B\noutput p B: fatal error\nfail p\nstart p\npass p",
			"\nDIED p B\nfatal error\n", true},
		"another package's failure excuses nothing": {"run p A\nfail p A\nfail p\nrun q B\npass q B\nfail q\n" +
			"run p A\npass p A\npass p", "\nFLAKY p A\n\nFAILED q\n", true},
	} {
		var events strings.Builder
		for line := range strings.Lines(c.events) {
			head, output, _ := strings.Cut(strings.TrimSpace(line), ": ")
			word := append(strings.Fields(head), "", "")
			events.WriteString(`{"Action":"` + word[0] + `","Package":"` + word[1] + `","Test":"` + word[2] +
				`","Output":"` + output + `\n"}` + "\n")
		}
		var out strings.Builder
		failed, err := report(strings.NewReader(events.String()), &out)
		if err != nil || failed != c.failed || out.String() != c.says {
			t.Errorf("%s: failed %v, %v, and says %q, want %v and %q", name, failed, err, out.String(), c.failed, c.says)
		}
	}
	if _, err := report(strings.NewReader("FAIL\n"), new(strings.Builder)); err == nil {
		t.Error("a line that is no event is read")
	}
}
