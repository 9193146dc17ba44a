package executor_test

import (
	"bytes"
	"encoding/hex"
	goflag "flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Golden ledgers are messages as a released version has stored them, and what they
// fold to after each of them. testdata/golden/NAME.ledger has one message a line:
// sequence, stamp in unix ns, subject, content type or "-", bytes in hex.
// NAME.fold6 has one digest a line, that of fold version 6 after so many messages.
//
// A golden file never changes: what a version has stored, every later one folds. A
// change of the fold that gives other digests needs another FoldVersion, and that
// another .fold file beside the ones that are there. `go test ./executor -run Golden -update`
// writes what is missing and nothing else: digests of this FoldVersion,
// and ledgers for kinds of records that no golden has (docs/guide/upgrade.md).
var updateGolden = goflag.Bool("update", false, "write golden ledgers and digests that are missing")

const goldenFolder = "testdata/golden"

func goldenPath(name, suffix string) string { return filepath.Join(goldenFolder, name+"."+suffix) }

func foldSuffix() string { return "fold" + strconv.Itoa(FoldVersion) }

// goldenNames are the ledgers that are there, in order.
func goldenNames(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(goldenPath("*", "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".ledger"))
	}
	return names
}

func formatGolden(log []ledger.Message) []byte {
	var b bytes.Buffer
	for _, m := range log {
		contentType := m.ContentType
		if contentType == "" {
			contentType = "-"
		}
		fmt.Fprintf(&b, "%d %d %s %s %x\n", m.Sequence, m.StampNs, m.Subject, contentType, m.Data)
	}
	return b.Bytes()
}

func readGolden(t *testing.T, name string) (log []ledger.Message) {
	t.Helper()
	text, err := os.ReadFile(goldenPath(name, "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var m ledger.Message
		fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(fields) != 5 {
			t.Fatalf("%s: %q", name, line)
		}
		var errs [3]error
		m.Sequence, errs[0] = strconv.ParseUint(fields[0], 10, 64)
		m.StampNs, errs[1] = strconv.ParseInt(fields[1], 10, 64)
		m.Data, errs[2] = hex.DecodeString(fields[4])
		if m.Subject = fields[2]; fields[3] != "-" {
			m.ContentType = fields[3]
		}
		if errs != [3]error{} || m.Sequence != uint64(len(log)+1) {
			t.Fatalf("%s: %q: %v", name, line, errs)
		}
		log = append(log, m)
	}
	return log
}

// goldenFold folds a golden ledger; the state is opened anew before each message
// that reopen names. It returns the digest after each flush, by sequence.
func goldenFold(t *testing.T, log []ledger.Message, batch int, reopen func(n int) bool) map[int]string {
	t.Helper()
	programs := triggers.NewCache(ExpressionsMax)
	w := &world{t: t, log: log, programs: programs}
	kv := rows.NewMemoryKV()
	s := OpenWith(kv, "t", w, programs)
	digests := map[int]string{}
	for i, m := range log {
		if reopen(i) {
			s = OpenWith(kv, "t", w, programs)
		}
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			s.Apply(e)
		}
		if (i+1)%batch == 0 || i+1 == len(log) {
			s.Flush()
			digests[i+1] = rows.FormatDigest(rows.Digest(kv))
		}
	}
	return digests
}

// TestGoldenLedgersFoldToTheirDigests from every prefix: stopped after each message,
// opened anew, gone on, in one run, and in other batches (I7).
func TestGoldenLedgersFoldToTheirDigests(t *testing.T) {
	t.Parallel()
	if *updateGolden {
		writeGolden(t)
	}
	names := goldenNames(t)
	if len(names) == 0 {
		t.Fatal("no golden ledgers")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			log := readGolden(t, name)
			text, err := os.ReadFile(goldenPath(name, foldSuffix()))
			if err != nil {
				t.Fatalf("no digests of fold version %d; if the change of rules is meant, run with -update: %v", FoldVersion, err)
			}
			want := strings.Fields(string(text))
			if len(want) != len(log) {
				t.Fatalf("%d digests of %d messages", len(want), len(log))
			}
			check := func(how string, got map[int]string) {
				t.Helper()
				for n, digest := range got {
					if digest != want[n-1] {
						t.Fatalf("%s: after message %d of %s the digest is %s, was %s; other rules need another FoldVersion", how, n,
							name, digest, want[n-1])
					}
				}
			}
			check("in one run", goldenFold(t, log, 1, func(int) bool { return false }))
			check("opened anew before each message", goldenFold(t, log, 1, func(int) bool { return true }))
			check("in batches of 3", goldenFold(t, log, 3, func(int) bool { return false }))
			check("in one batch", goldenFold(t, log, len(log), func(int) bool { return false }))
			for stop := range log {
				check(fmt.Sprint("opened anew behind ", stop), goldenFold(t, log, 1, func(n int) bool { return n == stop }))
			}
		})
	}
}

// goldenKinds are the kinds of records of a ledger that are effective in it.
func goldenKinds(t *testing.T, log []ledger.Message) map[string]bool {
	t.Helper()
	kinds := map[string]bool{}
	w := &world{t: t, log: log}
	s := Open(rows.NewMemoryKV(), "t", w)
	for _, m := range log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if s.Apply(e).Verdict == Effective {
				kinds[ledger.KindOf(e.Record).Name] = true
			}
		}
	}
	return kinds
}

func allKinds() (names []string) {
	fields := (&pb.Record{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	return names
}

// TestEveryKindOfRecordHasAGolden: a kind that is new needs a ledger, which -update
// takes from the scripts that show it.
func TestEveryKindOfRecordHasAGolden(t *testing.T) {
	have, json := map[string]bool{}, false
	for _, name := range goldenNames(t) {
		log := readGolden(t, name)
		for kind := range goldenKinds(t, log) {
			have[kind] = true
		}
		json = json || slices.ContainsFunc(log, func(m ledger.Message) bool {
			return m.ContentType == ledger.ContentTypeJSON
		})
	}
	for _, kind := range allKinds() {
		if !have[kind] {
			t.Errorf("no golden ledger has an effective %s", kind)
		}
	}
	if !json {
		t.Error("no golden ledger has a commit in JSON")
	}
}

// writeGolden writes the files that are missing.
func writeGolden(t *testing.T) {
	t.Helper()
	have := map[string]bool{}
	for _, name := range goldenNames(t) {
		for kind := range goldenKinds(t, readGolden(t, name)) {
			have[kind] = true
		}
	}
	for _, made := range madeLedgers {
		if _, err := os.Stat(goldenPath(made.name, "ledger")); err == nil {
			continue
		}
		log := made.log(t)
		for kind := range goldenKinds(t, log) {
			have[kind] = true
		}
		writeNew(t, goldenPath(made.name, "ledger"), formatGolden(log))
	}
	for kind := range missingKinds(have) {
		if have[kind] {
			continue
		}
		name, log := scriptWith(t, kind)
		if log == nil {
			t.Errorf("no script shows an effective %s; give it a ledger in madeLedgers", kind)
			continue
		}
		for kind := range goldenKinds(t, log) {
			have[kind] = true
		}
		writeNew(t, goldenPath(name, "ledger"), formatGolden(log))
	}
	for _, name := range goldenNames(t) {
		if _, err := os.Stat(goldenPath(name, foldSuffix())); err == nil {
			continue
		}
		log := readGolden(t, name)
		digests := goldenFold(t, log, 1, func(int) bool { return false })
		var b bytes.Buffer
		for n := range log {
			fmt.Fprintln(&b, digests[n+1])
		}
		writeNew(t, goldenPath(name, foldSuffix()), b.Bytes())
	}
}

func missingKinds(have map[string]bool) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, kind := range allKinds() {
			if !have[kind] && !yield(kind) {
				return
			}
		}
	}
}

// writeNew writes a file that is not there.
func writeNew(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// scriptWith is the shortest ledger of a script in which a kind is effective.
func scriptWith(t *testing.T, kind string) (name string, log []ledger.Message) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var sections []*script
		runScript(t, file, func(s *script) {
			if !slices.Contains(sections, s) {
				sections = append(sections, s)
			}
		})
		for i, s := range sections {
			if (log == nil || len(s.log) < len(log)) && goldenKinds(t, s.log)[kind] {
				name, log = fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(file), ".txt"), i+1), s.log
			}
		}
	}
	return name, log
}
