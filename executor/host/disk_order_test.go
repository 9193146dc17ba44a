package host

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// diskOrderDir tells a process of TestWhatIsSaidToBeOnDiskIsThere where to write.
const diskOrderDir = "SAGENBAUM_DISK_ORDER"

// TestWhatIsSaidToBeOnDiskIsThere follows every system call that writes tiles, and asks at
// each one what a power cut there would leave: what synced.json says is on disk, with its
// name; synced.json and the checkpoint are whole files, old or new; and the partial tiles of
// a checkpoint have their names before it has its own.
func TestWhatIsSaidToBeOnDiskIsThere(t *testing.T) {
	if dir := os.Getenv(diskOrderDir); dir != "" {
		writeForDiskOrder(t, dir)
		return
	}
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("*** SKIPPED: this test needs strace (apt-get install strace) ***")
	}
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	calls := "trace=openat,write,pwrite64,ftruncate,fsync,fdatasync,renameat,rename,renameat2"
	cmd := exec.CommandContext(t.Context(), "strace", "-f", "-y", "-s", "40", "-e", calls, "-o", trace,
		os.Args[0], "-test.run", "^TestWhatIsSaidToBeOnDiskIsThere$")
	cmd.Env = append(os.Environ(), diskOrderDir+"="+filepath.Join(dir, "tiles"), "GOMAXPROCS=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := &tracedDisk{t: t, top: filepath.Join(dir, "tiles", "t"), dirty: map[string]bool{}, unnamed: map[string]bool{}}
	file, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() && !t.Failed() {
		d.line(lines.Text())
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for path := range d.dirty {
		never := []string{tiles.NewFile, signingFile, "lock"}
		if !strings.Contains(path, ".p/") && !slices.Contains(never, filepath.Base(path)) {
			t.Errorf("after a clean stop %s is not on disk", path)
		}
	}
	for _, name := range []string{tiles.SyncedName, tiles.CheckpointName} {
		if d.unnamed[filepath.Join(d.top, name)] {
			t.Errorf("after a clean stop the name of %s is not on disk", name)
		}
	}
	if d.said < ledger.TileWidth || d.checkpoints != 2 {
		t.Errorf("synced.json said %d tiles in the end, and %d checkpoints were written", d.said, d.checkpoints)
	}
}

// writeForDiskOrder writes tiles, up to the first full one of level 1, and two checkpoints.
func writeForDiskOrder(t *testing.T, dir string) {
	tl, err := tiles.Open(dir, "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	var records []*pb.Record
	for i := range 500 {
		records = append(records, &pb.Record{Kind: &pb.Record_FactAsserted{
			FactAsserted: &pb.FactAsserted{Key: fmt.Sprint("k", i), Value: []byte("1")},
		}})
	}
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		t.Fatal(err)
	}
	tl.From(0)
	signed := func(before uint64) {
		j := signJob{tenant: "t", tree: tiles.NewTree(tl.Files, tl.Edge.Clone()), file: new(sync.Mutex)}
		if err := j.publish(signedAt(tl.Size()), before); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(140) {
		m := ledger.Message{Sequence: n + 1, Subject: "saga.t.fact.src", Data: data}
		addAll(t, tl, []ledger.Message{m}, 1)
		if n == 2 {
			signed(0)
		}
	}
	signed(1500)
	if err := tl.Close(); err != nil {
		t.Fatal(err)
	}
}

func signedAt(size uint64) signed {
	return signed{checkpoint: ledger.Checkpoint{Size: size}, note: fmt.Appendf(nil, "t\n%d\n", size)}
}

// tracedDisk is what a power cut would take, as far as the system calls tell.
type tracedDisk struct {
	t           *testing.T
	top         string
	dirty       map[string]bool // files with bytes that were not synced
	unnamed     map[string]bool // names in folders that were not synced
	begun       map[string]string
	said        uint64 // full tiles, as synced.json says
	checkpoints int
	size        uint64 // that the next checkpoint covers
	text        string // last written to synced.json.new
}

var (
	tracedCall  = regexp.MustCompile(`^(\d+) +(\w+)\((.*)\) += (-?\d+)`)
	tracedFile  = regexp.MustCompile(`^\d+<([^>]*)>`)
	tracedPaths = regexp.MustCompile(`"([^"]*)"`)
	tracedTiles = regexp.MustCompile(`tiles\\":(\d+)`)
	tracedSize  = regexp.MustCompile(`"t\\n(\d+)\\n`)
)

// line takes a line of strace; a call that others interrupt counts where it ends.
func (d *tracedDisk) line(line string) {
	pid, rest, _ := strings.Cut(line, " ")
	if before, ok := strings.CutSuffix(line, " <unfinished ...>"); ok {
		if d.begun == nil {
			d.begun = map[string]string{}
		}
		d.begun[pid] = before
		return
	}
	if _, behind, ok := strings.Cut(rest, " resumed>"); ok && d.begun[pid] != "" {
		line = d.begun[pid] + behind
	}
	c := tracedCall.FindStringSubmatch(line)
	if c == nil || strings.HasPrefix(c[4], "-") || !strings.Contains(c[3], d.top) {
		return
	}
	switch c[2] {
	case "openat":
		if path := tracedPaths.FindStringSubmatch(c[3]); path != nil && strings.Contains(c[3], "O_CREAT") {
			d.unnamed[path[1]] = true
			if strings.Contains(c[3], "O_TRUNC") {
				d.dirty[path[1]] = true
			}
		}
	case "write", "pwrite64", "ftruncate":
		d.written(tracedFile.FindStringSubmatch(c[3])[1], c[3])
	case "fsync", "fdatasync":
		d.synced(tracedFile.FindStringSubmatch(c[3])[1])
	default:
		paths := tracedPaths.FindAllStringSubmatch(c[3], -1)
		d.renamed(paths[0][1], paths[1][1])
	}
}

func (d *tracedDisk) written(path, call string) {
	d.dirty[path] = true
	switch strings.TrimSuffix(filepath.Base(path), ".new") {
	case tiles.SyncedName:
		d.text = call
		d.wantNew(path)
	case tiles.CheckpointName:
		if size := tracedSize.FindStringSubmatch(call); size != nil {
			d.size, _ = strconv.ParseUint(size[1], 10, 64)
		}
		d.wantNew(path)
	}
}

// wantNew: a small file is never written in its place, where half of it could be left.
func (d *tracedDisk) wantNew(path string) {
	if !strings.HasSuffix(path, ".new") {
		d.t.Errorf("%s is written in its place", path)
	}
}

func (d *tracedDisk) synced(path string) {
	delete(d.dirty, path)
	for name := range d.unnamed {
		if filepath.Dir(name) == path {
			delete(d.unnamed, name)
		}
	}
}

func (d *tracedDisk) renamed(from, to string) {
	if d.dirty[from] {
		d.dirty[to] = true
	} else {
		delete(d.dirty, to)
	}
	delete(d.dirty, from)
	delete(d.unnamed, from)
	if d.unnamed[to] && filepath.Dir(to) == d.top { // nobody waits for the name of a partial tile
		d.t.Errorf("%s is written again, and its name before was not on disk", to)
	}
	d.unnamed[to] = true
	switch filepath.Base(to) {
	case tiles.SyncedName:
		tiles := tracedTiles.FindStringSubmatch(d.text)
		if d.dirty[to] || tiles == nil {
			d.t.Fatalf("synced.json has its name and is not on disk: %s", d.text)
		}
		d.said, _ = strconv.ParseUint(tiles[1], 10, 64)
		for n := range d.said {
			d.wantOnDisk(ledger.BundlePath(n, ledger.TileWidth))
			d.wantOnDisk(ledger.TilePath(0, n, ledger.TileWidth))
		}
		for n := range d.said / ledger.TileWidth {
			d.wantOnDisk(ledger.TilePath(1, n, ledger.TileWidth))
		}
	case tiles.CheckpointName:
		if d.checkpoints++; d.dirty[to] || d.size == 0 {
			d.t.Errorf("the checkpoint of %d records has its name and is not on disk", d.size)
		}
		for _, p := range tiles.PartialsOf(d.size) {
			for _, path := range p.Paths() {
				if !d.unnamed[filepath.Join(d.top, path)] {
					d.t.Errorf("the checkpoint of %d records is there before %s", d.size, path)
				}
			}
		}
	}
}

// wantOnDisk wants a file with its name, and those of the folders above it, on disk.
func (d *tracedDisk) wantOnDisk(path string) {
	path = filepath.Join(d.top, path)
	if d.dirty[path] || d.unnamed[path] {
		d.t.Errorf("synced.json says %d tiles, and %s is not on disk: bytes=%v name=%v",
			d.said, path, !d.dirty[path], !d.unnamed[path])
	}
}

// TestARecordIsInTheTilesBeforeItIsState: where the tiles cannot be written, nothing of the
// turn is kept as state.
func TestARecordIsInTheTilesBeforeItIsState(t *testing.T) {
	t.Parallel()
	a := foldingActor(t)
	for _, broken := range []bool{false, true} {
		data, err := ledger.EncodeCommit([]*pb.Record{{Kind: &pb.Record_FactAsserted{
			FactAsserted: &pb.FactAsserted{Key: "k", Value: []byte("1")},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		sequence := a.cursor() + 1
		if broken {
			a.tiles.Entries.Close()
		}
		m := ledger.Message{Sequence: sequence, Subject: "saga.t.fact.src", Data: data}
		if err := a.foldBatch(m, nil); (err != nil) != broken {
			t.Fatalf("broken=%v: %v", broken, err)
		}
		a.kv.Abandon()
		kept := executor.Open(a.kv, "t", nil).Meta().GetApplied().GetSequence()
		if kept != 1 || a.tiles.Last() != 1 {
			t.Errorf("broken=%v: the state is that of %d, and the tiles have %d", broken, kept, a.tiles.Last())
		}
	}
	var err error
	if a.tiles.Entries, err = os.OpenFile(a.tiles.Path(tiles.EdgeEntries), os.O_RDWR, 0o600); err != nil {
		t.Fatal(err)
	}
}
