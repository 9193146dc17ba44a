package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// A Git repository is an image of its folder as a whole: work tree, index, HEAD, every ref and
// reflog. Only its objects are left out, which Git adds to and does not change, so whatever a
// command does is undone without knowing the command.

const (
	treeMax   = 5_000     // files and folders of a repository, without its objects
	treeBytes = 128 << 20 // of all of them

	gitFolder  = ".git"
	gitObjects = ".git/objects"
	gitIndex   = ".git/index"
	gitLock    = ".git/index.lock"
	gitMessage = ".git/COMMIT_EDITMSG" // of the last commit, also of one that failed
)

// Repository says what a repository was at one moment. The image itself is a blob.
type Repository struct {
	Repository string `json:"repository"` // its folder, links followed
	SHA256     string `json:"sha256"`     // of the image
	Paths      int    `json:"paths"`
}

// RepositoryUndo says which repository RestoreRepository puts back.
type RepositoryUndo struct {
	Repository Repository  `json:"repository"`     // with the bytes of files
	Left       *Repository `json:"left,omitempty"` // by the effect; nil: no one knows
	Key        string      `json:"-"`              // names the folder in the trash
}

// node is what is at one path of a repository.
type node struct {
	Kind     Kind   `json:"kind"` // link: Content is where it leads
	Mode     uint32 `json:"mode,omitempty"`
	Modified string `json:"modified,omitempty"`
	Owner    string `json:"owner,omitempty"`
	Size     int64  `json:"size,omitempty"`
	SHA256   string `json:"sha256,omitempty"` // of the bytes
	Means    string `json:"means,omitempty"`  // of an index: of what it says, without times of files
	Content  string `json:"content,omitempty"`

	Attributes string `json:"attributes,omitempty"` // as of an Entry
}

const link Kind = "link"

// same reports whether two nodes are alike, whenever they were made.
func (n node) same(o node) bool {
	if n.Means != "" && o.Means != "" {
		n.SHA256, n.Size = o.SHA256, o.Size
	}
	n.Modified, n.Means = o.Modified, o.Means
	if sameAttributes(n.Attributes, o.Attributes) {
		n.Attributes = o.Attributes
	}
	return n == o
}

// entry is what dress gives back to what is at a path.
func (n node) entry(path string) Entry {
	return Entry{Path: path, Kind: n.Kind, Mode: n.Mode, Modified: n.Modified, Owner: n.Owner,
		Attributes: n.Attributes}
}

// TakeRepository says what a repository is now; with is whether the bytes of its files are kept.
// Errors: *ledger.Refused for a folder outside of the roots, for one that is no repository of its
// own, and for one that is too large.
func (f *Files) TakeRepository(path string, with bool) (Repository, error) {
	if !filepath.IsAbs(Home(path)) {
		return Repository{}, ledger.Refuse("path", fmt.Sprintf("%q", path),
			"the absolute path of the repository")
	}
	at, missing, err := f.resolve(path)
	if err != nil {
		return Repository{}, err
	}
	if info, err := os.Lstat(filepath.Join(at, gitFolder)); err != nil || len(missing) > 0 ||
		!info.IsDir() {
		return Repository{}, ledger.Refuse("path", at+" has no folder "+gitFolder,
			"the top folder of a repository that is no worktree or submodule of another one")
	}
	nodes, err := walk(at)
	if err != nil {
		return Repository{}, err
	}
	for name, n := range nodes {
		if !with || n.Kind != File {
			continue
		}
		if _, err := os.Stat(filepath.Join(f.blobs, n.SHA256)); err == nil {
			now := time.Now() // or Prune would remove what this image needs
			err = os.Chtimes(filepath.Join(f.blobs, n.SHA256), now, now)
			if err == nil {
				continue
			}
		}
		e := Entry{Path: filepath.Join(at, name)}
		if err := f.store(&e); err != nil {
			return Repository{}, err
		}
		if e.SHA256 != n.SHA256 {
			return Repository{}, fmt.Errorf("cannot keep %s: it changes meanwhile", e.Path)
		}
	}
	kept := map[string]node{}
	for name, n := range nodes {
		n.Content = asText(n.Content)
		kept[asText(name)] = n
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return Repository{}, fmt.Errorf("cannot keep %s: %w", at, err)
	}
	sum, err := f.storeBytes(raw)
	return Repository{Repository: at, SHA256: sum, Paths: len(nodes)}, err
}

// storeBytes keeps bytes as a blob.
func (f *Files) storeBytes(raw []byte) (string, error) {
	draft, err := os.CreateTemp(f.blobs, "image-")
	if err != nil {
		return "", fmt.Errorf("cannot keep an image: %w", err)
	}
	defer os.Remove(draft.Name())
	_, err = draft.Write(raw)
	e := Entry{Path: draft.Name()}
	if err = errors.Join(err, draft.Close()); err == nil {
		err = f.store(&e)
	}
	return e.SHA256, err
}

// walk looks at all of a repository but its objects.
func walk(root string) (map[string]node, error) {
	nodes, size := map[string]node{}, int64(0)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path) // it is below
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case name == gitObjects:
			return filepath.SkipDir
		case name == gitLock, name == gitMessage:
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		n := node{Kind: Folder, Mode: mode(info.Mode()), Modified: stamp(info.ModTime()),
			Owner: owner(info)}
		switch {
		case info.IsDir():
		case info.Mode().IsRegular():
			n.Kind = File
			n.SHA256, n.Size, err = digest(path, io.Discard)
			if name == gitIndex && err == nil {
				n.Means = meaning(path)
			}
		case info.Mode()&fs.ModeSymlink != 0:
			n.Kind, n.Mode = link, 0
			n.Content, err = os.Readlink(path)
		default:
			err = ledger.Refuse("path", path+" is neither a file, a folder nor a link", "one of them")
		}
		if n.Kind != link {
			n.Attributes = attributes(path)
		}
		nodes[name] = n
		if size += n.Size; err == nil && (len(nodes) > treeMax || size > treeBytes) {
			err = ledger.Refuse("path", fmt.Sprintf("%s has more than %d files and folders, or %d bytes, "+
				"beside its objects", root, treeMax, treeBytes), "a smaller repository")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", root, err)
	}
	return nodes, nil
}

// meaning is the SHA-256 of what an index says: its entries without the times and places of files,
// which whoever asks for a status writes again. Empty: it is of a version that is not read here.
func meaning(path string) string {
	raw, err := os.ReadFile(path)
	config, failed := os.ReadFile(filepath.Join(filepath.Dir(path), "config"))
	if errors.Join(err, failed) != nil || len(raw) < 12 || string(raw[:4]) != "DIRC" ||
		strings.Contains(strings.ToLower(string(config)), "objectformat") { // longer ids of objects
		return ""
	}
	number := func(at int) int {
		return int(raw[at])<<24 | int(raw[at+1])<<16 | int(raw[at+2])<<8 | int(raw[at+3])
	}
	version, hash, at := number(4), sha256.New(), 12
	if version != 2 && version != 3 {
		return ""
	}
	for range number(8) {
		if at+62 >= len(raw) {
			return ""
		}
		head := 62
		if version == 3 && raw[at+60]&0x40 != 0 {
			head = 64
		}
		end := bytes.IndexByte(raw[min(at+head, len(raw)):], 0)
		if end < 0 {
			return ""
		}
		hash.Write(raw[at+24 : at+28])         // mode
		hash.Write(raw[at+40 : at+head+end+1]) // object, flags and name
		at += (head + end + 8) &^ 7
	}
	return hex.EncodeToString(sumOf(hash))
}

func (f *Files) nodes(r Repository) (map[string]node, error) {
	raw, err := os.ReadFile(filepath.Join(f.blobs, filepath.Base(r.SHA256)))
	sum := sha256.Sum256(raw)
	if err != nil || hex.EncodeToString(sum[:]) != r.SHA256 {
		return nil, &Changed{r.Repository, "cannot be put back: its image " + r.SHA256 + " is not in " +
			f.blobs + ", or damaged"}
	}
	var kept map[string]node
	if err := json.Unmarshal(raw, &kept); err != nil {
		return nil, fmt.Errorf("cannot read the image of %s: %w", r.Repository, err)
	}
	nodes := map[string]node{}
	for text, n := range kept {
		name, err := asName(text)
		if err == nil {
			n.Content, err = asName(n.Content)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the image of %s: %w", r.Repository, err)
		}
		nodes[name] = n
	}
	return nodes, nil
}

// noText begins the text of a name that is not UTF-8, of which JSON would keep another one. No name
// begins so.
const noText = "\x00"

func asText(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return noText + hex.EncodeToString([]byte(name))
}

func asName(text string) (string, error) {
	digits, is := strings.CutPrefix(text, noText)
	if !is {
		return text, nil
	}
	name, err := hex.DecodeString(digits)
	return string(name), err
}

// RestoreRepository makes a repository what it was. Errors: *Changed where someone else has changed
// what the effect has, and those of the file system.
func (f *Files) RestoreRepository(ctx context.Context, u RepositoryUndo) error {
	at := u.Repository.Repository
	if resolved, missing, err := f.resolve(at); err != nil {
		return err
	} else if resolved != at || len(missing) > 0 {
		return &Changed{at, "is gone, or leads elsewhere by now"}
	}
	before, err := f.nodes(u.Repository)
	if err != nil {
		return err
	}
	was, err := os.Stat(filepath.Join(at, gitFolder))
	if err != nil {
		return &Changed{at, "is no repository by now"}
	}
	lock := filepath.Join(at, gitLock)
	locked := takeLock(lock, u.Key)
	release := sync.OnceFunc(func() { // its folder is as it was
		if locked == nil {
			_ = os.Remove(lock)
		}
		_ = os.Chtimes(filepath.Join(at, gitFolder), time.Time{}, was.ModTime())
	})
	if errors.Is(locked, os.ErrExist) {
		return fmt.Errorf("another process of Git works in %s, or was killed in it: %w", at, locked)
	}
	defer release()
	now, err := walk(at)
	if err != nil {
		return err
	}
	folder := now[gitFolder]
	folder.Modified = stamp(was.ModTime()) // before the lock
	now[gitFolder] = folder
	left := now
	if u.Left != nil {
		if left, err = f.nodes(*u.Left); err != nil {
			return err
		}
	}
	paths, err := differing(at, before, left, now, u.Left != nil)
	if err != nil {
		return err
	}
	if locked != nil && len(paths) > 0 { // else nothing is put back that needs it
		return fmt.Errorf("cannot keep Git from working in %s meanwhile: %w", at, locked)
	}
	if err := f.reachable(ctx, at, before, paths); err != nil {
		return err
	}
	if err := f.putNodes(at, before, now, paths, u.Key); err != nil {
		return err
	}
	release()
	if u.Left == nil {
		return nil
	}
	return settleFolders(at, before, left, now, paths)
}

// takeLock keeps Git from changing an index. A lock with the same key is of an attempt at the same
// undo that was killed. Errors: os.ErrExist where another has it, else those of the file system.
func takeLock(path, key string) error {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		if held, failed := os.ReadFile(path); failed == nil && key != "" && string(held) == key {
			return nil
		}
		return err
	}
	_, err = lock.WriteString(key)
	if err = errors.Join(err, lock.Close()); err != nil {
		_ = os.Remove(path) // as on a full disk; else the next attempt would take it for another's
	}
	return err
}

// differing are the paths that an effect has changed, and that are not as before yet. Errors:
// *Changed for one that someone else has changed since, and for all where no one knows what the
// effect has left.
func differing(at string, before, left, now map[string]node, known bool) (
	paths []string, err error) {
	all := maps.Clone(before)
	maps.Copy(all, left)
	changed := func(name, problem string) error {
		return &Changed{filepath.Join(at, filepath.FromSlash(name)), problem}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b, l, n := before[name], left[name], now[name]
		timed := b.Kind != Folder // times of folders are seen to at the end
		switch {
		case b.same(l) && (!timed || !known || b.Modified == l.Modified): // no effect
		case b.same(n) && b.SHA256 == n.SHA256 && (!timed || b.Modified == n.Modified): // undone
		case !known:
			return nil, changed(name, "is not as it was before the call, and no one knows what of that "+
				"the call has done")
		case !n.same(l) && !n.same(b):
			return nil, changed(name, "was changed since, and not by this call")
		case b.Kind != link && tooMany(b.Attributes) && !b.same(n):
			return nil, changed(name, "cannot be put back: it had more extended attributes than an image "+
				"keeps")
		default:
			paths = append(paths, name)
		}
	}
	for name := range now {
		parent := path.Dir(name)
		if _, known := all[name]; !known && before[parent].Kind != Folder &&
			slices.Contains(paths, parent) {
			return nil, changed(name, "is in a folder that the call has made, and not of the call")
		}
	}
	return paths, nil
}

var objectID = regexp.MustCompile(`\b[0-9a-f]{40}(?:[0-9a-f]{24})?\b`)

// reachable refuses to put back refs and an index whose objects are gone, as after a clean-up of
// Git's.
func (f *Files) reachable(ctx context.Context, at string, before map[string]node,
	paths []string) error {
	var ids []string
	for _, name := range paths {
		b := before[name]
		isRef := path.Dir(name) == gitFolder && strings.HasSuffix(name, "HEAD") ||
			strings.HasPrefix(name, ".git/refs/") || name == ".git/packed-refs"
		switch {
		case b.Kind != File:
		case name == gitIndex:
			out, err := git(ctx, at, nil, "GIT_INDEX_FILE="+filepath.Join(f.blobs, b.SHA256), "ls-files",
				"--stage")
			if err != nil {
				return err
			}
			for line := range strings.Lines(out) {
				if fields := strings.Fields(line); len(fields) > 1 && fields[0] != submodule {
					ids = append(ids, fields[1])
				}
			}
		case isRef:
			raw, err := os.ReadFile(filepath.Join(f.blobs, b.SHA256))
			if err != nil {
				return &Changed{filepath.Join(at, name), "cannot be put back: its image is gone"}
			}
			ids = append(ids, objectID.FindAllString(string(raw), -1)...)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	in := strings.NewReader(strings.Join(ids, "\n") + "\n")
	out, err := git(ctx, at, in, "", "cat-file", "--batch-check")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if id, is := strings.CutSuffix(strings.TrimSpace(line), " missing"); is {
			return &Changed{at, "cannot be put back: object " + id + " is not there any more, as " +
				"after git gc"}
		}
	}
	return nil
}

// submodule is the mode of an entry whose object is in another repository.
const submodule = "160000"

// git runs a command that only reads, and returns its output.
func git(ctx context.Context, at string, in io.Reader, env string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", append([]string{"-c", "core.fsmonitor=false", "-C", at},
		args...)...)
	c.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	if env != "" {
		c.Env = append(c.Env, env)
	}
	var out, said bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = in, &out, &said
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %.200s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// putNodes makes paths what they were: first what is too much is taken away, the deepest first,
// then what is missing is made.
func (f *Files) putNodes(at string, before, now map[string]node, paths []string, key string) error {
	for _, name := range slices.Backward(paths) {
		b, n, path := before[name], now[name], filepath.Join(at, name)
		var err error
		switch {
		case n.Kind == "" || n.Kind == b.Kind && n.Kind != link:
		case n.Kind == File && !strings.HasPrefix(name, gitFolder):
			err = f.discard(path, key)
		default:
			err = os.Remove(path)
		}
		if err != nil && !os.IsNotExist(err) {
			return &Changed{path, "cannot be taken away: " + err.Error()}
		}
	}
	for _, name := range paths {
		b, path := before[name], filepath.Join(at, name)
		var err error
		switch b.Kind {
		case Folder:
			if err = os.Mkdir(path, 0o700); os.IsExist(err) {
				err = nil
			}
		case File:
			was := b.entry(path)
			was.SHA256, was.Blob = b.SHA256, true
			err = f.rewrite(was)
		case link:
			err = os.Symlink(b.Content, path)
		}
		if err != nil {
			return fmt.Errorf("cannot put back %s: %w", path, err)
		}
	}
	return nil
}

// settleFolders makes folders what they were: those among the sorted paths, which the effect has
// changed, in everything; the others have lost their times alone to what was done in them. Whose
// time someone else has changed since keeps it.
func settleFolders(at string, before, left, now map[string]node, paths []string) error {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(before))) {
		b, n := before[name], now[name]
		if b.Kind != Folder {
			continue
		}
		was := b.entry(filepath.Join(at, name))
		_, changed := slices.BinarySearch(paths, name)
		var err error
		switch theirs := n.Kind == Folder && n.Modified != left[name].Modified; {
		case changed:
			if theirs {
				was.Modified = n.Modified
			}
			err = dress(was.Path, was)
		case !theirs:
			err = dressTimes(was.Path, was)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
