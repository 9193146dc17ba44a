package proof

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// diskOrderDir tells a process of TestWhatIsSaidToBeOnDiskIsThere where to write.
const diskOrderDir = "SAGENBAUM_DISK_ORDER"

// What the process writes: messages of so many records, as many as fill a tile of level 1.
const (
	orderRecords  = 500
	orderMessages = 140
	orderSegment  = 16384 // records
	orderTile     = 8 + ledger.TileWidth*ledger.LeafSize
)

// TestWhatIsSaidToBeOnDiskIsThere follows every system call that writes tiles, and asks at
// each one what a power cut there would leave: what synced.json says is on disk, to the last
// byte and with its name; the tree of a checkpoint is before the checkpoint has its name; both
// are whole files, old or new; a segment goes when it is packed, on disk, with its name; and
// nothing is cut off that synced.json says is there, or written over before that is on disk.
func TestWhatIsSaidToBeOnDiskIsThere(t *testing.T) {
	if dir := os.Getenv(diskOrderDir); dir != "" {
		writeForDiskOrder(t, dir)
		return
	}
	t.Parallel()
	testenv.Strace(t)
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	calls := "trace=openat,write,pwrite64,ftruncate,fsync,fdatasync,renameat,rename,renameat2,unlinkat,mkdirat"
	cmd := exec.CommandContext(t.Context(), "strace", "-f", "-y", "-s", "40", "-e", calls, "-o", trace,
		os.Args[0], "-test.run", "^TestWhatIsSaidToBeOnDiskIsThere$")
	cmd.Env = append(os.Environ(), diskOrderDir+"="+filepath.Join(dir, "tiles"), "GOMAXPROCS=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := newTracedDisk(t, filepath.Join(dir, "tiles", "t"))
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
	for path, f := range d.files {
		if filepath.Base(path) != "lock" && (f.synced < f.written || f.changed || d.unnamed[path]) {
			t.Errorf("after a clean stop %s is not on disk: %+v", path, f)
		}
	}
	if all := uint64(orderRecords * (orderMessages + 1)); d.said != all || d.checkpoints != 2 ||
		d.packed == 0 || d.cuts != 2 {
		t.Errorf("synced.json says %d of %d records in the end; %d checkpoints were written, %d segments "+
			"packed, %d files cut", d.said, all, d.checkpoints, d.packed, d.cuts)
	}
}

// orderMessage is one message of what is written.
func orderMessage(t *testing.T, sequence uint64) (ledger.Message, []ledger.Entry) {
	t.Helper()
	var records []*pb.Record
	for i := range orderRecords {
		records = append(records, &pb.Record{Kind: &pb.Record_FactAsserted{
			FactAsserted: &pb.FactAsserted{Key: fmt.Sprint("k", i), Value: []byte("1")},
		}})
	}
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		t.Fatal(err)
	}
	m := ledger.Message{Sequence: sequence, Subject: "saga.t.fact.src", Data: data}
	entries, err := ledger.Decode("t", m)
	if err != nil {
		t.Fatal(err)
	}
	return m, entries
}

// writeForDiskOrder writes tiles, up to the first full one of level 1, waits for a segment to be
// packed, cuts a message off that is not whole, and writes two checkpoints.
func writeForDiskOrder(t *testing.T, dir string) {
	tl, err := tiles.Open(dir, "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	tl.From(0)
	signed := func() {
		j := signJob{tenant: "t", tree: tiles.NewTree(tl.Files, tl.Edge.Clone()), file: new(sync.Mutex)}
		if err := j.publish(signedAt(tl.Size())); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(orderMessages) {
		m, _ := orderMessage(t, n+1)
		keep(t, tl, m)
		if n == 2 {
			signed()
		}
	}
	for wait := 0; ; wait++ {
		if _, err := os.Stat(tl.Path("entries/3")); errors.Is(err, fs.ErrNotExist) {
			break
		}
		if wait > 300 {
			t.Fatal("no segment is packed")
		}
		<-time.After(100 * time.Millisecond)
	}
	m, entries := orderMessage(t, orderMessages+1)
	for _, e := range entries[:10] {
		if err := tl.Keep(m, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tl.Flush(), tl.Sync(), tl.CutToLast()); err != nil {
		t.Fatal(err)
	}
	keep(t, tl, m)
	signed()
	if err := tl.Close(); err != nil {
		t.Fatal(err)
	}
}

func signedAt(size uint64) signed {
	return signed{checkpoint: ledger.Checkpoint{Size: size}, note: fmt.Appendf(nil, "t\n%d\n", size)}
}

// tracedFile is what of a file a power cut would leave.
type tracedFile struct {
	written, synced int64 // bytes from the start
	changed         bool  // it was cut off or made, and not synced since
}

// tracedDisk is what a power cut would take, as far as the system calls tell.
type tracedDisk struct {
	t           *testing.T
	top         string
	ends        []int64 // of each record in its segment
	files       map[string]*tracedFile
	unnamed     map[string]bool // names in folders that were not synced
	begun       map[string]string
	beganAt     map[string]int64 // bytes that the sync of a thread may bring to disk
	said        uint64           // records, as synced.json says
	checkpoints int
	packed      int
	cuts        int
	size        uint64 // that the next checkpoint covers
	text        string // last written to synced.json.new
}

func newTracedDisk(t *testing.T, top string) *tracedDisk {
	d := &tracedDisk{t: t, top: top, files: map[string]*tracedFile{}, unnamed: map[string]bool{},
		begun: map[string]string{}, beganAt: map[string]int64{}}
	at := int64(0)
	for n := range uint64(orderMessages + 1) {
		m, entries := orderMessage(t, n+1)
		for _, e := range entries {
			if len(d.ends)%orderSegment == 0 {
				at = 0
			}
			at += 4 + int64(len(ledger.AppendLeaf(nil, "t", m, e.Address.Index, e.Count, e.Reader, e.Body)))
			d.ends = append(d.ends, at)
		}
	}
	return d
}

var (
	tracedCall  = regexp.MustCompile(`^(\d+) +(\w+)\((.*)\) += (-?\d+)`)
	tracedName  = regexp.MustCompile(`^\d+<([^>]*)>`)
	tracedPaths = regexp.MustCompile(`"([^"]*)"`)
	tracedLast  = regexp.MustCompile(`(\d+)$`)
	tracedSaid  = regexp.MustCompile(`records\\":(\d+)`)
	tracedSize  = regexp.MustCompile(`"t\\n(\d+)\\n`)
)

// line takes a line of strace; a call that others interrupt counts where it ends, but a sync
// brings to disk what was written where it began.
func (d *tracedDisk) line(line string) {
	pid, rest, _ := strings.Cut(line, " ")
	if before, ok := strings.CutSuffix(line, " <unfinished ...>"); ok {
		d.begun[pid] = before
		if _, args, ok := strings.Cut(before, "sync("); ok {
			if name := tracedName.FindStringSubmatch(args); name != nil && d.files[name[1]] != nil {
				d.beganAt[pid] = d.files[name[1]].written
			}
		}
		return
	}
	resumed := false
	if _, behind, ok := strings.Cut(rest, " resumed>"); ok && d.begun[pid] != "" {
		line, resumed = d.begun[pid]+behind, true
	}
	c := tracedCall.FindStringSubmatch(line)
	if c == nil || strings.HasPrefix(c[4], "-") || !strings.Contains(c[3], d.top) {
		return
	}
	name, paths := tracedName.FindStringSubmatch(c[3]), tracedPaths.FindAllStringSubmatch(c[3], -1)
	switch c[2] {
	case "openat":
		d.opened(paths[0][1], c[3])
	case "mkdirat":
		d.unnamed[paths[0][1]] = true
	case "write", "pwrite64":
		d.wrote(name[1], c)
	case "ftruncate":
		at, _ := strconv.ParseInt(tracedLast.FindString(c[3]), 10, 64)
		d.truncated(name[1], at)
	case "fsync", "fdatasync":
		d.synced(name[1], pid, resumed)
	case "unlinkat":
		d.removed(paths[0][1])
	default:
		d.renamed(paths[0][1], paths[1][1])
	}
}

func (d *tracedDisk) opened(path, call string) {
	if !strings.Contains(call, "O_CREAT") {
		return
	}
	if d.files[path] == nil {
		d.files[path], d.unnamed[path] = &tracedFile{changed: true}, true
	}
	if strings.Contains(call, "O_TRUNC") {
		*d.files[path] = tracedFile{changed: true}
	}
}

func (d *tracedDisk) wrote(path string, call []string) {
	f := d.files[path]
	count, _ := strconv.ParseInt(call[4], 10, 64)
	at := f.written
	if call[2] == "pwrite64" {
		at, _ = strconv.ParseInt(tracedLast.FindString(call[3]), 10, 64)
		if at != f.written {
			d.t.Errorf("%s has %d bytes, and is written at %d", path, f.written, at)
		}
		if f.changed && f.synced > 0 {
			d.t.Errorf("%s was cut off, and is written before that is on disk", path)
		}
	}
	f.written = at + count
	switch strings.TrimSuffix(filepath.Base(path), ".new") {
	case tiles.SyncedName:
		d.text = call[3]
		d.wantNew(path)
	case tiles.CheckpointName:
		if size := tracedSize.FindStringSubmatch(call[3]); size != nil {
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

func (d *tracedDisk) truncated(path string, at int64) {
	need := d.hashesOf(d.said)
	if path != filepath.Join(d.top, tiles.HashesName) {
		need = d.ends[d.said-1]
	}
	if at < need {
		d.t.Errorf("%s is cut off at %d, and synced.json says %d records", path, at, d.said)
	}
	f := d.files[path]
	f.written, f.synced, f.changed = at, min(f.synced, at), true
	d.cuts++
}

func (d *tracedDisk) synced(path, pid string, resumed bool) {
	if f := d.files[path]; f != nil {
		upTo := f.written
		if resumed {
			upTo = d.beganAt[pid]
		}
		f.synced, f.changed = max(f.synced, min(upTo, f.written)), false
	}
	for name := range d.unnamed {
		if filepath.Dir(name) == path {
			delete(d.unnamed, name)
		}
	}
}

// removed is a file that goes: a segment only when it is packed.
func (d *tracedDisk) removed(path string) {
	delete(d.files, path)
	delete(d.unnamed, path)
	k, err := strconv.ParseUint(filepath.Base(path), 10, 64)
	if err != nil || filepath.Base(filepath.Dir(path)) != "entries" {
		return
	}
	d.packed++
	if !d.onDisk(path+".s2") || d.said < (k+1)*orderSegment {
		d.t.Errorf("%s is gone; packed %+v, synced.json says %d", path, d.files[path+".s2"], d.said)
	}
}

func (d *tracedDisk) renamed(from, to string) {
	if d.unnamed[to] && filepath.Dir(to) == d.top {
		d.t.Errorf("%s is written again, and its name before was not on disk", to)
	}
	f := d.files[from]
	d.files[to] = f
	delete(d.files, from)
	delete(d.unnamed, from)
	d.unnamed[to] = true
	whole := f.synced == f.written && !f.changed
	switch filepath.Base(to) {
	case tiles.SyncedName:
		said := tracedSaid.FindStringSubmatch(d.text)
		if !whole || said == nil {
			d.t.Fatalf("synced.json has its name and is not on disk: %s", d.text)
		}
		d.said, _ = strconv.ParseUint(said[1], 10, 64)
		d.wantOnDisk(to, d.said)
	case tiles.CheckpointName:
		d.checkpoints++
		if !whole || d.size == 0 {
			d.t.Errorf("the checkpoint of %d records has its name and is not on disk", d.size)
		}
		d.wantOnDisk(to, d.size)
	default:
		if strings.HasSuffix(to, ".s2") && !whole {
			d.t.Errorf("%s has its name and is not on disk", to)
		}
	}
}

// hashesOf are the bytes of the hashes of so many records.
func (d *tracedDisk) hashesOf(records uint64) int64 {
	bytes := int64(records/ledger.TileWidth) * orderTile
	if within := int64(records % ledger.TileWidth); within > 0 {
		bytes += 8 + within*ledger.LeafSize
	}
	return bytes
}

// onDisk reports whether a file is on disk with its name and those of the folders above it.
func (d *tracedDisk) onDisk(path string) bool {
	f := d.files[path]
	ok := f != nil && f.synced == f.written && !f.changed
	return ok && d.named(path)
}

func (d *tracedDisk) named(path string) bool {
	for ; path != d.top; path = filepath.Dir(path) {
		if d.unnamed[path] {
			return false
		}
	}
	return true
}

// wantOnDisk wants so many records on disk, and the tiles above them.
func (d *tracedDisk) wantOnDisk(by string, records uint64) {
	hashes := filepath.Join(d.top, tiles.HashesName)
	if f := d.files[hashes]; records > 0 && (f == nil || f.synced < d.hashesOf(records) || !d.named(hashes)) {
		d.t.Errorf("%s says %d records: hashes %+v", by, records, f)
	}
	for k := uint64(0); k*orderSegment < records; k++ {
		path := filepath.Join(d.top, "entries", strconv.FormatUint(k, 10))
		end := d.ends[min(records, (k+1)*orderSegment)-1]
		if f := d.files[path]; !d.onDisk(path+".s2") && (f == nil || f.synced < end || !d.named(path)) {
			d.t.Errorf("%s says %d records: segment %d %+v", by, records, k, f)
		}
	}
	for n := range records >> 16 {
		if path := filepath.Join(d.top, ledger.TilePath(1, n, ledger.TileWidth)); !d.onDisk(path) {
			d.t.Errorf("%s says %d records: %s %+v", by, records, path, d.files[path])
		}
	}
}
