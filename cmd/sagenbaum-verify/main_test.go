package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
)

// facts is a bundle of a ledger of n facts, signed, with its key.
func facts(t testing.TB, n int) (data []byte, key, checkpoint string) {
	t.Helper()
	return factsAfter(t, n, 0)
}

// factsAfter is facts whose first one has another stamp.
func factsAfter(t testing.TB, n int, stamp int64) (data []byte, key, checkpoint string) {
	t.Helper()
	secret, public, err := note.GenerateKey(bytes.NewReader(make([]byte, 64)), ledger.Origin("t"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := bundle.NewWriter(&out, bundle.Header{Tenant: "t", Holds: bundle.Whole})
	if err != nil {
		t.Fatal(err)
	}
	var tree bundle.Tree
	for i := range n {
		m := ledger.Message{Sequence: uint64(i + 1), StampNs: max(stamp, int64(i)), Subject: "saga.t.fact.s",
			Data: []byte{8, 1, 18, 0}}
		leaf := ledger.AppendLeaf(nil, "t", m, 0, 1, 1, nil)
		tree.Append(ledger.LeafHash(leaf))
		if err := w.Record(leaf); err != nil {
			t.Fatal(err)
		}
	}
	text, err := note.Sign(&note.Note{Text: ledger.Checkpoint{Origin: ledger.Origin("t"), Size: tree.Size(),
		Root: tree.Root()}.Text()}, signer)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Checkpoint(string(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.End(tree.Root()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), public, string(text)
}

func put(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTheExitCodeSaysWhatIsProven, and both reports say why.
func TestTheExitCodeSaysWhatIsProven(t *testing.T) {
	data, key, checkpoint := facts(t, 400)
	file, keyFile, before := put(t, "b", data), put(t, "k", []byte("# of t\n"+key+"\n")), put(t, "c",
		[]byte(checkpoint))
	damaged := bytes.Clone(data)
	damaged[len(data)/2] ^= 1
	smaller, _, _ := facts(t, 300)
	_, other, err := note.GenerateKey(nil, ledger.Origin("t"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		exit int
		want string
	}{
		{"proven", []string{file, "--key", key}, 0, "PROVEN"},
		{"a key in a file, flags first", []string{"--key", keyFile, file}, 0, "400 of 400"},
		{"from standard input", []string{"-", "--key", key}, 0, "PROVEN"},
		{"with a checkpoint from before", []string{file, "--key", key, "--before", before}, 0,
			"400 records of the checkpoint"},
		{"no key", []string{file}, 2, "no key was given"},
		{"damaged", []string{put(t, "d", damaged), "--key", key}, 1, "altered or damaged"},
		{"truncated", []string{put(t, "s", smaller), "--key", key, "--before", before}, 1, "truncated"},
		{"cut off", []string{put(t, "o", data[:len(data)-20]), "--key", key}, 2, "cut off"},
		{"no bundle", []string{keyFile, "--key", key}, 1, "does not begin with"},
		{"an empty file", []string{put(t, "e", nil), "--key", key}, 2, "before anything is in it"},
		{"a folder", []string{t.TempDir(), "--key", key}, 2, "is a directory"},
		{"a key of another ledger", []string{file, "--key", other}, 1, "no key in force has signed"},
		{"no file", []string{file + "x"}, 2, "cannot read the bundle"},
		{"no key file", []string{file, "--key", file + "x"}, 2, "cannot read the key"},
		{"a key that is none", []string{file, "--key", "sagenbaum/t+1+2"}, 2, "is no verifier key"},
		{"no bundle named", nil, 64, "which bundle?"},
		{"two", []string{file, file}, 64, "one bundle"},
		{"an unknown flag", []string{"--fast"}, 64, "usage:"},
		{"an unknown output", []string{file, "-o", "xml"}, 64, "text or json"},
		{"help", []string{"--help"}, 0, "usage:"},
		{"version", []string{"--version"}, 0, "sagenbaum-verify"},
		{"version beside a file", []string{file, "--key", key, "--version"}, 64, "checks nothing"},
		{"a file named as a flag, with a key", []string{"--version", "--key", key}, 64, "./--version"},
		{"help beside a file", []string{file, "-h"}, 64, "checks nothing"},
		{"a file named -h, with a key", []string{"-h", "--key", key}, 64, "./-h"},
		{"a file named -h after --", []string{"--key", key, "--", "-h"}, 2, "open -h: no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			exit := run(c.args, bytes.NewReader(data), &stdout, &stderr)
			if exit != c.exit || !strings.Contains(stdout.String()+stderr.String(), c.want) {
				t.Fatalf("exit %d, want %d with %q:\n%s%s", exit, c.exit, c.want, &stdout, &stderr)
			}
		})
	}
	var stdout, stderr bytes.Buffer
	var report verify.Report
	if exit := run([]string{file, "-o", "json", "--key", key}, nil, &stdout, &stderr); exit != 0 ||
		json.Unmarshal(stdout.Bytes(), &report) != nil || report.Verdict != verify.Proven || report.Size != 400 {
		t.Fatalf("%d %s%s", exit, &stdout, &stderr)
	}
	if got := verify.Printable("a\x1b[2J\u202eb\xff"); got != `a\x1b[2J\u202eb`+"\ufffd" {
		t.Fatalf("a bundle may steer a terminal: %q", got)
	}
}

// TestTheDocumentsCountTheRules as the reports do.
func TestTheDocumentsCountTheRules(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	counts := regexp.MustCompile(`held to (\d+) rules`).FindAllSubmatch(page, -1)
	for _, c := range counts {
		if string(c[1]) != strconv.Itoa(audit.RulesHeld()) {
			t.Errorf("docs/audit.md has %s, and there are %d", c[0], audit.RulesHeld())
		}
	}
	if len(counts) == 0 {
		t.Error("no report in docs/audit.md")
	}
}

// TestWhatIsEmptyIsNotLeftOut: a file or variable of a script that is empty has nothing checked less.
func TestWhatIsEmptyIsNotLeftOut(t *testing.T) {
	data, key, checkpoint := facts(t, 10)
	file, before, empty := put(t, "b", data), put(t, "kept", []byte(checkpoint)), put(t, "empty", nil)
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"--before", ""}, exitUsage, "-before: it is empty"},
		{[]string{"--keep", ""}, exitUsage, "-keep: it is empty"},
		{[]string{"--why", ""}, exitUsage, "-why: it is empty"},
		{[]string{"--before", before, "--before", before}, exitUsage, "given twice"},
		{[]string{"--before", empty}, exitCannotTell, "is empty"},
		{[]string{"--before", os.DevNull}, exitCannotTell, "is empty"},
		{[]string{"--before", put(t, "line", []byte("\n"))}, exitCannotTell, "is empty"},
	} {
		var stdout, stderr bytes.Buffer
		if exit := run(append([]string{file, "--key", key}, c.args...), nil, &stdout, &stderr); exit != c.exit ||
			!strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
			t.Errorf("%q: exit %d, want %d with %q:\n%s%s", c.args, exit, c.exit, c.want, &stdout, &stderr)
		}
	}
}

// TestTheVerifierHoldsNothingOfWhatItChecks: no server, no network, no state store, no
// executor is in it.
func TestTheVerifierHoldsNothingOfWhatItChecks(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatal("go list says too little: ", deps)
	}
	const module = "github.com/sagenbaum/sagenbaum/"
	ours := map[string]bool{"proto/sagenbaum/v1": true, "proto/api": true, "ledger": true, "ledger/audit": true,
		"ledger/bundle": true, "ledger/seal": true, "ledger/verify": true, "triggers": true,
		"ledger/audit/ids": true, "triggers/exact": true, "triggers/nearest": true, "proto/rawjson": true,
		"cmd/sagenbaum-verify": true}
	for _, dep := range deps {
		if folder, is := strings.CutPrefix(dep, module); is && !ours[folder] {
			t.Errorf("it is linked with %s", dep)
		}
		for _, no := range []string{"github.com/nats-io", "github.com/cockroachdb", "net/http", "runtime/cgo"} {
			if dep == no && no != "runtime/cgo" || strings.HasPrefix(dep, no+"/") {
				t.Errorf("it is linked with %s", dep)
			}
		}
	}
}

// TestTheVerifierIsOneStaticFile.
func TestTheVerifierIsOneStaticFile(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "sagenbaum-verify")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := exec.Command("go", "version", "-m", binary).Output()
	if err != nil || !strings.Contains(string(info), "CGO_ENABLED=0") || strings.Contains(string(info), "nats-io") {
		t.Fatalf("%v: %s", err, info)
	}
	data, key, _ := facts(t, 10)
	alone := exec.Command(binary, put(t, "b", data), "--key", key)
	alone.Env = []string{"TMPDIR=" + t.TempDir()}
	if out, err := alone.CombinedOutput(); err != nil || !strings.Contains(string(out), "PROVEN") {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestLeavesAreFoundInTheirFile also behind what memory keeps of it, and behind a gap.
func TestLeavesAreFoundInTheirFile(t *testing.T) {
	files, err := newFiles()
	if err != nil {
		t.Fatal(err)
	}
	defer files.close()
	l := files.leaves
	leaf := func(n uint64) (h [ledger.LeafSize]byte) {
		binary.BigEndian.PutUint64(h[:], n)
		return h
	}
	const last = 60_000
	for s := uint64(1); s <= last; s++ {
		for i := range uint32(s%3 + 1) {
			l.Put(s, i, leaf(s*8+uint64(i)), s%5 == 0)
		}
	}
	l.Put(last+7, 2, leaf(1), true)
	for _, s := range []uint64{1, 2, 3, 20_000, 59_999, last} {
		for i := range uint32(4) {
			got, refused, known := l.Get(s, i)
			if want := uint64(i) < s%3+1; known != want || known &&
				(got != leaf(s*8+uint64(i)) || refused != (s%5 == 0)) {
				t.Fatal(s, i, got, refused, known)
			}
		}
	}
	if _, _, known := l.Get(last+1, 0); known || l.err != nil {
		t.Fatal("a leaf that never was", l.err)
	}
	if got, refused, known := l.Get(last+7, 2); !known || !refused || got != leaf(1) {
		t.Fatal(got, refused, known)
	}
}

// FuzzRun checks arbitrary files: no panic, and no proof without a signature.
func FuzzRun(f *testing.F) {
	data, key, _ := facts(f, 30)
	f.Add(data)
	f.Add(data[:90])
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := verify.Check(bytes.NewReader(file), verify.Options{Keys: []string{key}})
		if err != nil {
			return // of another tenant than the key's
		}
		if r.Verdict == verify.Proven && r.Signed.Size != r.Size {
			t.Fatal("proven without a signature")
		}
		r.Text("f")
	})
}

// TestAShelfGivesBackWhatWasPutLast of every key, whatever its index has grown to, and
// each of them once.
func TestAShelfGivesBackWhatWasPutLast(t *testing.T) {
	files, err := newFiles()
	if err != nil {
		t.Fatal(err)
	}
	defer files.close()
	s, want := files.shelf, map[string]string{}
	r := rand.New(rand.NewPCG(4, 2))
	for n := range 30_000 {
		key := fmt.Sprintf("%c%d", 'a'+r.IntN(3), r.IntN(9000))
		if n%1000 == 0 {
			key = fmt.Sprint("long", n)
		}
		value := strings.Repeat(fmt.Sprint(n, ","), r.IntN(20))
		if n%1000 == 0 {
			value = strings.Repeat("x", 3<<20/2)
		}
		s.Put(key, []byte(value))
		want[key] = value
	}
	for key, value := range want {
		if got, ok := s.Get(key); !ok || string(got) != value {
			t.Fatalf("%s is %.40q, want %.40q", key, got, value)
		}
		if _, ok := s.Get(key + "?"); ok {
			t.Fatal("something that was never put: ", key)
		}
	}
	seen := 0
	s.Each("a", func(key string, value []byte) {
		if seen++; want[key] != string(value) || key[0] != 'a' {
			t.Fatalf("%s is %.40q", key, value)
		}
		s.Get("b1") // whoever is called may ask
	})
	for key := range want {
		if key[0] == 'a' {
			seen--
		}
	}
	if seen != 0 || files.failed() != nil {
		t.Fatal(seen, files.failed())
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "sagenbaum-verify-*")); err == nil &&
		runtime.GOOS != "windows" {
		for _, name := range left {
			for _, f := range []*os.File{s.rows.file, s.index} {
				if f.Name() == name {
					t.Errorf("%s can be found", name)
				}
			}
		}
	}
	if err := s.rows.file.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Get("long0"); ok || files.failed() == nil {
		t.Fatal("a file that is gone is read")
	}
}
