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
	for _, linked := range strings.Fields(string(out)) {
		if !strings.HasSuffix(linked, "/proto/api") && !strings.HasSuffix(linked, "/proto/rawjson") {
			t.Errorf("it links %s beside the standard library", linked)
		}
	}
}
