package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// peersOf is a run whose systems are scripts that print these lines.
func peersOf(t *testing.T, out *bytes.Buffer) *peersRun {
	return &peersRun{out: out, harness: t.TempDir(), dir: t.TempDir(), cache: t.TempDir(),
		bench:   &benching{each: time.Second, concurrency: []int{1, 16}, rounds: 3},
		figures: map[string]map[int][]peerFigure{}}
}

func script(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "run.sh")
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func figure(n int, rate float64, more string) string {
	return fmt.Sprintf(`echo '{"workload":"undo5","concurrency":%d,"sagas_per_s":%g,`+
		`"cpu_s_per_1000":2.5%s}'`+"\n", n, rate, more)
}

func TestTheTableSaysTheRatioOfTheMediansInOneRun(t *testing.T) {
	out := new(bytes.Buffer)
	r := peersOf(t, out)
	for _, rate := range []float64{300, 100, 200} { // the median is 200
		for name, text := range map[string]string{
			peersOurs:             figure(1, rate, "") + figure(16, 4*rate, ""),
			peersInside:           figure(1, 3*rate, ""),
			peerSystems[0].name:   "echo progress >&2\n" + figure(1, 2*rate, "") + figure(16, rate, ""),
			peerSystems[2].name:   "echo not a figure\n" + figure(16, 2*rate, ""),
			"of another workload": `echo '{"workload":"timers","concurrency":1,"sagas_per_s":9}'`,
		} {
			if err := r.measure(t.Context(), name, "sh", script(t, text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.table()
	for _, row := range []string{
		"| Sagenbaum | 200 (100 to 300) | 800 (400 to 1200) |",
		"| Sagenbaum in process | 600 (300 to 900) | |",
		"| DBOS on SQLite | 400 (200 to 600) | 200 (100 to 300) |",
		"| Restate | | 400 (200 to 600) |",
		"| Sagenbaum, times the best other system | 0.50 | 2.00 |",
		"| Sagenbaum in process, times the best other system | 1.50 | |",
		"| Sagenbaum | 2.50 | 2.50 |",
		"| Restate | | 2.50 |",
	} {
		if !strings.Contains(out.String(), "\n"+row+"\n") {
			t.Errorf("no row %q in\n%s", row, out)
		}
	}
	if strings.Contains(out.String(), "another workload") {
		t.Errorf("a system without figures is shown:\n%s", out)
	}
}

func TestAWrongRunIsNoFigure(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{figure(1, 5, `,"errors":2`), "2 errors"},
		{figure(1, 5, `,"order_violations":1`), "1 undos in the wrong order"},
		{figure(1, 5, `,"extra_calls":3`), "3 twice"},
		{figure(1, 5, "") + "echo no such disk >&2\nexit 3\n", "no such disk"},
	} {
		r := peersOf(t, new(bytes.Buffer))
		err := r.measure(t.Context(), "x", "sh", script(t, c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
		if len(r.figures) != 0 {
			t.Errorf("%s: figures were kept: %v", c.text, r.figures)
		}
	}
}

func TestAHarnessThatCannotBeBuiltIsSaid(t *testing.T) {
	b := &benching{peers: t.TempDir(), rounds: 1, each: time.Second, concurrency: []int{1}}
	err := benchPeers(t.Context(), new(bytes.Buffer), b, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "cannot build the harness") {
		t.Errorf("%v", err)
	}
}
