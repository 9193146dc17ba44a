package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// TestACheckpointIsKeptForTheNextTime, and not one of a ledger in which something is wrong.
func TestACheckpointIsKeptForTheNextTime(t *testing.T) {
	data, key, _ := facts(t, 400)
	smaller, _, _ := facts(t, 300)
	longer, _, _ := facts(t, 500)
	file := put(t, "b", data)
	kept := filepath.Join(t.TempDir(), "kept")
	other := put(t, "other", []byte(ledger.Checkpoint{Origin: ledger.Origin("u"), Size: 900}.Text()+"\n— u x\n"))
	for _, c := range []struct {
		name string
		args []string
		exit int
		want string
	}{
		{"nothing to keep", []string{file, "--keep", kept}, 2, "none was verified"},
		{"kept", []string{file, "--key", key, "--keep", kept}, 0, "PROVEN"},
		{"with what was kept", []string{file, "--key", key, "--before", kept}, 0, "400 records of the checkpoint"},
		{"a smaller one", []string{put(t, "s", smaller), "--key", key, "--before", kept, "--keep", kept}, 1,
			"truncated"},
		{"one that is cut off",
			[]string{put(t, "c", smaller[:len(smaller)-3]), "--key", key, "--before", kept, "--keep", kept}, 2,
			"of 300 records, goes on from the one of --before, of 400"},
		{"with what is still kept", []string{file, "--key", key, "--before", kept}, 0, "400 records of the checkpoint"},
		{"a longer one", []string{put(t, "l", longer), "--key", key, "--before", kept, "--keep", kept}, 0, "PROVEN"},
		{"which is kept", []string{put(t, "l", longer), "--key", key, "--before", kept}, 0, "500 records of the checkpoint"},
		{"an older bundle", []string{put(t, "o", smaller), "--key", key, "--keep", kept}, 0,
			"no checkpoint was kept: " + kept + " has one of 500 records, and this bundle's last one has 300"},
		{"which changes nothing", []string{put(t, "l", longer), "--key", key, "--before", kept}, 0,
			"500 records of the checkpoint"},
		{"where another ledger's is", []string{file, "--key", key, "--keep", other}, 0, "PROVEN"},
		{"which is replaced", []string{file, "--key", key, "--before", other}, 0, "400 records of the checkpoint"},
		{"to no regular file", []string{file, "--key", key, "--keep", os.DevNull}, 0, "PROVEN"},
		{"kept nowhere", []string{file, "--key", key, "--keep", filepath.Join(kept, "x")}, 2, "cannot keep"},
	} {
		var stdout, stderr bytes.Buffer
		if exit := run(c.args, nil, &stdout, &stderr); exit != c.exit ||
			!strings.Contains(stdout.String()+stderr.String(), c.want) {
			t.Fatalf("%s: exit %d, want %d with %q:\n%s%s", c.name, exit, c.exit, c.want, &stdout, &stderr)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(kept)); err != nil || len(left) != 1 {
		t.Fatalf("beside what is kept: %v %v", left, err)
	}
}

// TestAKeptCheckpointIsHeldAgainstTheNextBundle, without --before too, and is no more replaced by that
// of another history of its ledger.
func TestAKeptCheckpointIsHeldAgainstTheNextBundle(t *testing.T) {
	data, key, checkpoint := facts(t, 400)
	fork, _, _ := factsAfter(t, 400, 1)
	longer, _, _ := facts(t, 500)
	longerFork, _, _ := factsAfter(t, 500, 1)
	_, _, early := facts(t, 100)
	_, _, forkEarly := factsAfter(t, 100, 1)
	for _, c := range []struct {
		name string
		data []byte
		args []string
		exit int
		want string
		kept bool // the file is as it was
	}{
		{"the same", data, nil, 0, "400 records of the checkpoint", true},
		{"a fork of that size", fork, nil, 1, "there are two histories of that size", true},
		{"a longer fork", longerFork, nil, 1, "a fork: the first 400 records", true},
		{"a fork, with one of its own from before", longerFork, []string{"--before", put(t, "early", []byte(forkEarly))}, 1,
			"a fork: the first 400 records", true},
		{"a longer one", longer, nil, 0, "400 records of the checkpoint", false},
		{"a longer one, with another from before", longer, []string{"--before", put(t, "early", []byte(early))}, 0,
			"100 records of the checkpoint", false},
		{"a fork that is cut off", fork[:len(fork)-3], nil, 1, "a fork", true},
	} {
		kept := put(t, "kept", []byte(checkpoint))
		var out bytes.Buffer
		exit := run(append([]string{put(t, "b", c.data), "--key", key, "--keep", kept}, c.args...), nil, &out, &out)
		got, err := os.ReadFile(kept)
		if err != nil || exit != c.exit || !strings.Contains(out.String(), c.want) ||
			(string(got) == checkpoint) != c.kept {
			t.Errorf("%s: exit %d, want %d with %q; kept: %v %s\n%s", c.name, exit, c.exit, c.want, err, got, &out)
		}
	}
	var out bytes.Buffer
	bad := put(t, "bad", []byte(strings.Replace(checkpoint, "\n400\n", "\n401\n", 1)))
	if exit := run([]string{put(t, "b", longer), "--key", key, "--keep", bad}, nil, &out, &out); exit != 2 ||
		!strings.Contains(out.String(), "the checkpoint that is kept already: ") {
		t.Errorf("one that was changed: exit %d\n%s", exit, &out)
	}
}

// TestACheckpointIsKeptWhereALinkPoints: the link stays.
func TestACheckpointIsKeptWhereALinkPoints(t *testing.T) {
	data, key, checkpoint := facts(t, 40)
	kept, link := put(t, "kept", []byte("old")), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(kept, link); err != nil {
		t.Skip("no links here: ", err)
	}
	var out bytes.Buffer
	if exit := run([]string{put(t, "b", data), "--key", key, "--keep", link}, nil, &out, &out); exit != 0 {
		t.Fatal(exit, &out)
	}
	if got, err := os.ReadFile(kept); err != nil || string(got) != checkpoint {
		t.Fatalf("%v: %s", err, got)
	}
	if to, err := os.Readlink(link); err != nil || to != kept {
		t.Fatal("the link is no more: ", to, err)
	}
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	if exit := run([]string{put(t, "b", data), "--key", key, "--keep", link}, nil, &out, &out); exit != 2 {
		t.Fatal("to where a link points to nothing: ", exit, &out)
	}
}
