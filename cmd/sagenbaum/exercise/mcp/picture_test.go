//go:build exercise

package mcp

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// The picture of the README is what the demo prints with the real server, but for what differs
// from run to run. `make pictures` draws it.
func TestThePictureOfTheDemo(t *testing.T) {
	t.Parallel()
	server, programs := filesServer(t, ""), t.TempDir()
	npx := fmt.Sprintf("#!/bin/sh\nshift 2\nexec %s '%s' \"$@\"\n", server[0], server[1])
	if err := os.WriteFile(filepath.Join(programs, "npx"), []byte(npx), 0o755); err != nil {
		t.Fatal(err)
	}
	demo := cmdtest.Sagenbaum(t, "demo", "mcp")
	demo.Env = append(demo.Env, "PATH="+programs+":"+os.Getenv("PATH"))
	r := cmdtest.Finished(t, demo)
	r.Wants(t, "demo mcp", cli.ExitGood)
	drawn, file := drawing("sagenbaum demo mcp", steady(r.Stdout)), "demo-mcp.svg"
	if dir := os.Getenv("SAGENBAUM_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(drawn), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(cmdtest.InCheckout(t, "docs", "pictures", file))
	if err != nil || string(was) != drawn {
		t.Errorf("docs/pictures/%s is not what the demo prints now (%v): make pictures\n%s", file, err, r.Stdout)
	}
}

var (
	planID    = regexp.MustCompile(`01[0-9A-Z]{24}`)
	who       = regexp.MustCompile(`cancelled by \S+ · record \d+`)
	took      = regexp.MustCompile(`(all checks hold) in .*`)
	shownSize = 100 // columns
)

// steady is what a demo prints without what differs from run to run.
func steady(said string) string {
	said = planID.ReplaceAllString(said, "PLAN")
	return took.ReplaceAllString(who.ReplaceAllString(said, "cancelled by you"), "$1")
}

// drawing is a terminal, as SVG, in which a command has printed something.
func drawing(command, said string) string {
	const line, left, char = 20, 16, 8.4
	lines := append([]string{"$ " + command}, strings.Split(strings.TrimSpace(said), "\n")...)
	var out strings.Builder
	width, height := left*2+int(char*float64(shownSize)), line*len(lines)+2*left
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d"`+
		` font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="#d5d9e0">`+"\n", width, height,
		width, height)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" rx="8" fill="#16191f"/>`+"\n", width, height)
	for i, text := range lines {
		if text == "" {
			continue
		}
		style := ""
		switch {
		case strings.HasPrefix(text, "  ok "):
			style = ` fill="#7ee08a"`
		case strings.HasPrefix(text, "$ "):
			style = ` fill="#8ab4f8"`
		case !strings.HasPrefix(text, " "):
			style = ` font-weight="bold"`
		}
		fmt.Fprintf(&out, `<text x="%d" y="%d" xml:space="preserve"%s>%s</text>`+"\n", left, left+line*i+14, style,
			html.EscapeString(text))
	}
	return out.String() + "</svg>\n"
}
