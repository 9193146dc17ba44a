//go:build exercise

package console_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// chromium is the browser of this machine, or "".
func chromium() string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

// browse runs a script of folder browser and logs what it prints. Without Chromium or
// Node it skips loudly, unless SAGENBAUM_BROWSER asks for the browser.
func browse(t *testing.T, s *stage, script string, environment ...string) {
	t.Helper()
	missing := ""
	node, err := exec.LookPath("node")
	browser := chromium()
	switch {
	case browser == "":
		missing = "no Chromium is installed (Debian: apt-get install chromium)"
	case err != nil:
		missing = "no Node is installed"
	default:
		if _, err := os.Stat(filepath.Join("browser", "node_modules", "playwright-core")); err != nil {
			missing = "Playwright is not installed: npm ci in executor/host/console/browser, as make test-browser does"
		}
	}
	if missing != "" {
		if os.Getenv("SAGENBAUM_BROWSER") != "" {
			t.Fatal(missing)
		}
		t.Skip("*** the console is NOT tested in a browser: " + missing + " ***")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, script)
	cmd.Dir = "browser"
	cmd.Env = append(
		os.Environ(),
		append(environment, "CHROMIUM="+browser, "CONSOLE="+s.console.URL(), "STAGE="+s.direct().URL, "TOKEN="+token)...,
	)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = cmd.Stdout
	must(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
}

// TestTheConsoleInABrowser drives the pages in a real Chromium: a plan that fails before
// the eyes of one, a quarantine that is resolved by clicks, forged and hostile input, keys,
// widths and contrasts.
func TestTheConsoleInABrowser(t *testing.T) {
	s := newStage(t, nil)
	s.play()
	s.judged()
	browse(t, s, "console.mjs")
}

// TestPicturesOfTheConsole takes the pictures of docs/pictures into the folder that
// SAGENBAUM_PICTURES names.
func TestPicturesOfTheConsole(t *testing.T) {
	folder := os.Getenv("SAGENBAUM_PICTURES")
	if folder == "" {
		t.Skip("SAGENBAUM_PICTURES names no folder")
	}
	s := newStage(t, nil)
	s.play()
	s.judged()
	browse(t, s, "pictures.mjs", "PICTURES="+folder)
}
