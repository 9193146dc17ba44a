package api_test

import (
	"os/exec"
	"strings"
	"testing"
)

// An agent or a worker links this package: it must stay small.
func TestOnlyTheStandardLibraryIsLinked(t *testing.T) {
	const format = "{{if not .Standard}}{{.ImportPath}}{{end}}"
	out, err := exec.Command("go", "list", "-deps", "-f", format, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); len(got) != 1 || !strings.HasSuffix(got[0], "/proto/api") {
		t.Errorf("it links %q, want itself and the standard library", got)
	}
}
