package files

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Kind says what is at a path.
type Kind string

// What may be at a path.
const (
	Absent Kind = "absent"
	File   Kind = "file"
	Folder Kind = "folder"
)

// Image says what was at some paths at one moment.
type Image struct {
	Entries []Entry `json:"entries"`
}

// Entry is what was at one path. Times are RFC 3339 with nanoseconds, in UTC.
type Entry struct {
	Path     string `json:"path"` // absolute, links followed
	Kind     Kind   `json:"kind"`
	Mode     uint32 `json:"mode,omitempty"` // permissions, with setuid, setgid and sticky
	Modified string `json:"modified,omitempty"`
	Accessed string `json:"accessed,omitempty"`
	Owner    string `json:"owner,omitempty"`    // uid:gid, where there are such
	Identity string `json:"identity,omitempty"` // that a rename keeps

	// Attributes are the extended attributes that its users have given it, with its access control
	// list: noAttributes, names and values as in the query of a URL, or manyAttributes and a SHA-256
	// in hex. Empty: they are not known.
	Attributes string `json:"attributes,omitempty"`

	// Of a file. Its bytes are in Content as base64, or a blob; an image that was taken
	// without them has neither.
	Size    int64  `json:"size,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	Content string `json:"content,omitempty"`
	Blob    bool   `json:"blob,omitempty"`

	// Of what is absent: the folders on its path that are, too, the highest first, and itself.
	Missing []string `json:"missing,omitempty"`

	// Made are the folders among those that were missing and are there now, but for the path itself.
	Made []Access `json:"made,omitempty"`

	// The nearest folder above that is there, and when it was changed last.
	Anchor         string `json:"anchor"`
	AnchorModified string `json:"anchor_modified"`
}

// Access says who may do what.
type Access struct {
	Mode       uint32 `json:"mode"`
	Owner      string `json:"owner,omitempty"`
	Attributes string `json:"attributes,omitempty"` // as of an Entry
}

func (a Access) same(b Access) bool {
	return a.Mode == b.Mode && a.Owner == b.Owner && sameAttributes(a.Attributes, b.Attributes)
}

// Take says what is at these paths, with the bytes of files. Errors: *ledger.Refused for a path
// outside of the roots, for what is neither file nor folder, and for a file above SizeMax.
func (f *Files) Take(paths []string) (Image, error) {
	if len(paths) == 0 || len(paths) > pathsMax {
		return Image{}, ledger.Refuse("paths", fmt.Sprint(len(paths)),
			fmt.Sprintf("1 to %d paths", pathsMax))
	}
	var image Image
	for _, path := range paths {
		resolved, missing, err := f.resolve(path)
		if err != nil {
			return Image{}, err
		}
		e, err := look(resolved, missing)
		if err == nil && e.Kind == File {
			err = f.keep(&e)
		}
		if err != nil {
			return Image{}, err
		}
		image.Entries = append(image.Entries, e)
	}
	return image, nil
}

// Again says what is now at the paths of an image, without bytes.
func (f *Files) Again(before Image) (Image, error) {
	var image Image
	for _, b := range before.Entries {
		e, err := f.now(b)
		if err != nil {
			return Image{}, err
		}
		image.Entries = append(image.Entries, e)
	}
	return image, nil
}

// Same reports whether nothing has changed between two images of the same paths.
func Same(a, b Image) bool {
	if len(a.Entries) != len(b.Entries) {
		return false
	}
	for i := range a.Entries {
		x, y := a.Entries[i], b.Entries[i]
		if x.Path != y.Path || x.Kind != y.Kind || x.SHA256 != y.SHA256 || x.Mode != y.Mode ||
			x.Modified != y.Modified || x.Identity != y.Identity ||
			!sameAttributes(x.Attributes, y.Attributes) ||
			x.AnchorModified != y.AnchorModified {
			return false
		}
	}
	return true
}

// Alike reports whether an undo that puts back the one image puts back the other: it is Same but
// for the times of the folders around, and what is missing on the way is the same.
func Alike(a, b Image) bool {
	if len(a.Entries) != len(b.Entries) {
		return false
	}
	around := Image{Entries: slices.Clone(b.Entries)}
	for i := range around.Entries {
		x, y := a.Entries[i], &around.Entries[i]
		if x.Anchor != y.Anchor || x.Owner != y.Owner || !slices.Equal(x.Missing, y.Missing) {
			return false
		}
		y.AnchorModified = x.AnchorModified
	}
	return Same(a, around)
}

// SettleFailed reports whether nothing is left of an effect that has failed, and gives the folders
// around their times back: a server may have made a file there and removed it.
func (f *Files) SettleFailed(before, after Image) (bool, error) {
	if len(before.Entries) != len(after.Entries) {
		return false, nil
	}
	alike := Image{Entries: slices.Clone(after.Entries)}
	for i := range alike.Entries {
		alike.Entries[i].AnchorModified = before.Entries[i].AnchorModified
	}
	if !Same(before, alike) {
		return false, nil
	}
	for i, b := range before.Entries {
		now, err := f.now(b)
		if err == nil {
			err = settleAnchor(b, now, &after.Entries[i])
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// now looks at the path of an entry again, with the same anchor.
func (f *Files) now(b Entry) (Entry, error) {
	if gone := below(b.Path, f.gone); gone != "" && !f.within(b.Path) {
		return Entry{}, &Changed{gone, "is no longer there: it was a root of the client, in which the " +
			"call was made"}
	}
	if !filepath.IsAbs(b.Path) || filepath.Clean(b.Path) != b.Path || !f.within(b.Path) ||
		!f.within(b.Anchor) {
		return Entry{}, ledger.Refuse("path", b.Path+" is outside of the folders of this worker",
			"a path in one of them")
	}
	if !chained(b) {
		return Entry{}, ledger.Refuse("missing", "is not the way from "+b.Anchor+" to "+b.Path,
			"each folder of it, and the path itself")
	}
	if resolved, _, err := f.resolve(b.Path); err != nil || resolved != b.Path {
		return Entry{}, &Changed{b.Path, "leads elsewhere by now: a folder on its path became a link"}
	}
	e, err := look(b.Path, nil)
	if err != nil {
		return Entry{}, err
	}
	if e.Kind == File {
		if e.SHA256, _, err = digest(b.Path, io.Discard); err != nil {
			return Entry{}, err
		}
	}
	for _, path := range b.Missing[:max(0, len(b.Missing)-1)] {
		if info, err := os.Lstat(path); err == nil && info.IsDir() {
			e.Made = append(e.Made, Access{mode(info.Mode()), owner(info), attributes(path)})
		}
	}
	e.Anchor, e.AnchorModified = b.Anchor, ""
	if info, err := os.Stat(b.Anchor); err == nil {
		e.AnchorModified = stamp(info.ModTime())
	}
	return e, nil
}

// chained reports whether what was missing is the way from the anchor to the path, and nothing
// else.
func chained(b Entry) bool {
	above := b.Anchor
	for _, path := range b.Missing {
		if filepath.Dir(path) != above || path == above || filepath.Clean(path) != path {
			return false
		}
		above = path
	}
	return len(b.Missing) == 0 || above == b.Path
}

// look says what is at a resolved path, but for its bytes.
func look(path string, missing []string) (Entry, error) {
	e := Entry{Path: path, Kind: Absent, Missing: missing, Anchor: filepath.Dir(path)}
	if len(missing) > 0 {
		e.Anchor = filepath.Dir(missing[0])
	}
	if info, err := os.Stat(e.Anchor); err == nil {
		e.AnchorModified = stamp(info.ModTime())
	}
	info, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return e, nil
	case err != nil:
		return e, fmt.Errorf("cannot look at %s: %w", path, err)
	case info.IsDir():
		e.Kind = Folder
	case info.Mode().IsRegular():
		e.Kind, e.Size = File, info.Size()
	default:
		return e, ledger.Refuse("path", path+" is neither a file nor a folder", "a file or a folder")
	}
	e.Mode = mode(info.Mode())
	e.Modified, e.Accessed, e.Owner, e.Identity = stamp(info.ModTime()), accessed(info), owner(info),
		identity(info)
	e.Attributes = attributes(path)
	return e, nil
}

// attributesMax is how many bytes the extended attributes of a file may have, names and values: an
// image carries them.
const attributesMax = 2 << 10

const (
	noAttributes   = "-" // Entry.Attributes of what has none
	manyAttributes = "#" // begins those of which an image has the SHA-256 alone
)

// tooMany reports whether an image has the SHA-256 of attributes alone, so that they cannot be put
// back.
func tooMany(attributes string) bool { return strings.HasPrefix(attributes, manyAttributes) }

// sameAttributes reports whether attributes may be the same ones.
func sameAttributes(x, y string) bool { return x == y || x == "" || y == "" }

// mode is what chmod takes.
func mode(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for bit, set := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid,
		0o1000: fs.ModeSticky} {
		if m&set != 0 {
			bits |= bit
		}
	}
	return bits
}

func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	for bit, set := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid,
		0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			m |= set
		}
	}
	return m
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// keep stores the bytes of a file with its entry.
func (f *Files) keep(e *Entry) error {
	if e.Size > SizeMax {
		return ledger.Refuse("path", fmt.Sprintf("%s has %d bytes", e.Path, e.Size),
			fmt.Sprintf("a file of at most %d bytes, which can be put back", SizeMax))
	}
	if tooMany(e.Attributes) {
		return ledger.Refuse("path", e.Path+" has too many extended attributes",
			fmt.Sprintf("a file with at most %d bytes of them, which can be put back", attributesMax))
	}
	if e.Size > inlineMax {
		return f.store(e)
	}
	content, err := os.ReadFile(e.Path)
	if err != nil {
		return fmt.Errorf("cannot keep %s: %w", e.Path, err)
	}
	if len(content) > inlineMax {
		return f.store(e) // it has grown meanwhile
	}
	sum := sha256.Sum256(content)
	e.Size, e.SHA256 = int64(len(content)), hex.EncodeToString(sum[:])
	e.Content = base64.StdEncoding.EncodeToString(content)
	return nil
}

// store keeps the bytes of a file as a blob, which is on disk when it returns.
func (f *Files) store(e *Entry) error {
	draft, err := os.CreateTemp(f.blobs, "draft-")
	if err != nil {
		return fmt.Errorf("cannot keep %s: %w", e.Path, err)
	}
	defer os.Remove(draft.Name()) // it fails once the draft has its name
	sum, size, err := digest(e.Path, draft)
	if err == nil {
		err = draft.Sync()
	}
	if closing := draft.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(draft.Name(), filepath.Join(f.blobs, sum))
	}
	if err == nil {
		err = syncFolder(f.blobs)
	}
	if err != nil {
		return fmt.Errorf("cannot keep %s: %w", e.Path, err)
	}
	e.Size, e.SHA256, e.Blob = size, sum, true
	return nil
}

// digest copies a file and returns the SHA-256 of what it has copied, in hex.
func digest(path string, to io.Writer) (sum string, size int64, err error) {
	in, err := os.Open(path)
	if err != nil {
		return "", 0, fmt.Errorf("cannot read %s: %w", path, err)
	}
	defer in.Close()
	hash := sha256.New()
	size, err = io.Copy(io.MultiWriter(to, hash), io.LimitReader(in, SizeMax+1))
	if err != nil {
		return "", 0, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if size > SizeMax {
		return "", 0, ledger.Refuse(
			"path",
			path+" is too large",
			fmt.Sprintf("at most %d bytes", SizeMax),
		)
	}
	return hex.EncodeToString(sumOf(hash)), size, nil
}

func sumOf(hash interface{ Sum([]byte) []byte }) []byte { return hash.Sum(nil) }

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
