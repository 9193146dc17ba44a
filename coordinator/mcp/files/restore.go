package files

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Undo says what Restore and MoveBack are to put back.
type Undo struct {
	Before Image  `json:"before"` // with the bytes of files
	After  *Image `json:"after"`  // what the effect has left; nil: no one knows

	// Written is what the effect was to write: a text, or an object with its sha256. It is
	// used in the place of After.
	Written json.RawMessage `json:"written,omitempty"`

	// Litter is a regular expression: siblings whose names are that of the file and a match
	// go to the trash, if the effect may have been cut short.
	Litter string `json:"litter,omitempty"`

	// Key names the folder in the trash.
	Key string `json:"-"`
}

// Restore makes the paths of an image what they were. Errors: *Changed, *ledger.Refused, those
// of the file system.
func (f *Files) Restore(u Undo) error {
	for i, b := range u.Before.Entries {
		now, err := f.now(b)
		if err != nil {
			return err
		}
		if err := f.put(b, now, u.after(i), u); err != nil {
			return err
		}
	}
	return nil
}

func (u Undo) after(i int) *Entry {
	if u.After == nil || i >= len(u.After.Entries) ||
		u.After.Entries[i].Path != u.Before.Entries[i].Path {
		return nil
	}
	return &u.After.Entries[i]
}

// put makes one path what it was.
func (f *Files) put(b, now Entry, after *Entry, u Undo) error {
	if after == nil && u.Litter != "" {
		if err := f.sweep(b, u); err != nil {
			return err
		}
	}
	ours := after != nil && after.Kind == now.Kind && after.SHA256 == now.SHA256 ||
		now.Kind == File && now.SHA256 != "" && now.SHA256 == writtenDigest(u.Written) ||
		after == nil && b.Kind == Absent && now.Kind == File && now.begins(u.Written)
	var err error
	switch {
	case b.Kind == Absent && after != nil && after.Kind == Absent:
		return &Changed{b.Path, "was not made, though the call is said to have been done: its server " +
			"may mean another path"}
	case b.Kind == Absent && now.Kind == Absent && !half(b), b.Kind == Folder:
		return nil
	case b.Kind == File && now.Kind == File && now.SHA256 == b.SHA256:
		if !dressable(b, now, after) {
			return nil // as it was, or as someone else has made it since
		}
		err = dress(b.Path, b)
	case after != nil && now.Kind == after.Kind && other(now, *after) != "":
		return &Changed{b.Path, other(now, *after)}
	case b.Kind == Absent && after != nil && now.Kind != after.Kind && now.Kind != Absent:
		return &Changed{b.Path, fmt.Sprintf("is a %s by now, and the call has made a %s", now.Kind,
			after.Kind)}
	case b.Kind == Absent && (now.Kind != File || ours):
		err = f.unmake(b, now, u.Key)
	case b.Kind == File && now.Kind == File && ours:
		if after != nil && !sameTime(after.Modified, now.Modified) {
			b.Modified = stamp(time.Now()) // who has touched it knows other bytes than it has from now on
		}
		err = f.rewrite(b)
	default:
		return &Changed{b.Path, changedText(b, now, after)}
	}
	if err != nil {
		return err
	}
	return settleAnchor(b, now, after)
}

// other says which permissions someone has given to what an effect has left, or to a folder that it
// has made on its way; empty: none. Who may do what with a file is never undone with its bytes.
func other(now, after Entry) string {
	text := func(mode uint32, owner string) string {
		return fmt.Sprintf("mode %04o, owner %s", mode, owner)
	}
	if now.Mode != after.Mode || now.Owner != after.Owner {
		return "has other permissions since: " + text(now.Mode, now.Owner) + ", and the call has left " +
			text(after.Mode, after.Owner)
	}
	const given = "other extended attributes, or another access control list, than the call has left"
	if !sameAttributes(now.Attributes, after.Attributes) {
		return "has " + given
	}
	for i, left := range after.Made {
		switch {
		case i >= len(now.Made) || now.Made[i].same(left):
		case now.Made[i].Mode == left.Mode && now.Made[i].Owner == left.Owner:
			return "is in a folder that has " + given
		default:
			return fmt.Sprintf("is in a folder that has other permissions since: %s, and the call has left "+
				"%s", text(now.Made[i].Mode, now.Made[i].Owner), text(left.Mode, left.Owner))
		}
	}
	return ""
}

// dressable reports whether a file has its bytes still, or again, and mode and time of the effect,
// or of an undo of it that was cut short.
func dressable(b, now Entry, after *Entry) bool {
	attributed := sameAttributes(now.Attributes, b.Attributes)
	if now.Modified == b.Modified && now.Mode == b.Mode && now.Owner == b.Owner && attributed ||
		after == nil {
		return false
	}
	return sameTime(now.Modified, after.Modified) &&
		(attributed || sameAttributes(now.Attributes, after.Attributes)) &&
		(now.Mode == after.Mode || now.Mode == b.Mode) &&
		(now.Owner == after.Owner || now.Owner == b.Owner)
}

// coarse is the largest step of the times of a file system, that of FAT.
const coarse = 2 * time.Second

// sameTime reports whether two times of a file may be the same one: a file system that keeps no
// fractions of a second may show them for as long as it has the file in memory.
func sameTime(x, y string) bool {
	if x == y {
		return true
	}
	a, bad := time.Parse(time.RFC3339Nano, x)
	b, worse := time.Parse(time.RFC3339Nano, y)
	return bad == nil && worse == nil && (a.Nanosecond() == 0) != (b.Nanosecond() == 0) &&
		a.Sub(b).Abs() < coarse
}

func changedText(b, now Entry, after *Entry) string {
	switch {
	case now.Kind == Absent:
		return "is gone: someone has deleted or moved it since"
	case now.Kind != b.Kind && b.Kind != Absent:
		return fmt.Sprintf("is a %s by now, and was a %s", now.Kind, b.Kind)
	}
	if after == nil {
		return fmt.Sprintf("has the SHA-256 %.12s, neither that of what was to be written nor of what "+
			"was there before: the call was cut short, or someone has changed it", now.SHA256)
	}
	return fmt.Sprintf("was changed since: its SHA-256 is %.12s, neither what was written nor what "+
		"was there before", now.SHA256)
}

// writtenDigest is the SHA-256 of what an effect was to write; empty: not known.
func writtenDigest(written json.RawMessage) string {
	var text *string
	if json.Unmarshal(written, &text) == nil && text != nil {
		sum := sha256.Sum256([]byte(*text))
		return hex.EncodeToString(sum[:])
	}
	var reference struct{ SHA256 string }
	if json.Unmarshal(written, &reference) == nil {
		return reference.SHA256
	}
	return ""
}

// begins reports whether the bytes of a file are a beginning of what an effect was to write: it was
// cut short, or has found no room. Of a long text that is recorded no beginning is known but none.
func (e Entry) begins(written json.RawMessage) bool {
	var text *string
	if json.Unmarshal(written, &text) != nil || text == nil {
		return len(written) > 0 && string(written) != "null" && e.Size == 0
	}
	if e.Size > int64(len(*text)) {
		return false
	}
	sum := sha256.Sum256([]byte((*text)[:e.Size]))
	return e.SHA256 == hex.EncodeToString(sum[:])
}

// Begun reports whether all that an effect has left is a new file with a beginning of what it was
// to write.
func Begun(u Undo) bool {
	after := u.after(0)
	return len(u.Before.Entries) == 1 && after != nil && u.Before.Entries[0].Kind == Absent &&
		after.Kind == File && after.begins(u.Written)
}

// settleAnchor gives the folder above its time back, if no one else has changed it since.
func settleAnchor(b, now Entry, after *Entry) error {
	if after == nil || after.AnchorModified != now.AnchorModified {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, b.AnchorModified)
	if err != nil {
		return ledger.Refuse("before.anchor_modified", err.Error(), "a time")
	}
	if err := os.Chtimes(b.Anchor, time.Time{}, t); err != nil {
		return fmt.Errorf("cannot set the time of %s: %w", b.Anchor, err)
	}
	return nil
}

// discard moves a file to the trash.
func (f *Files) discard(path, key string) error {
	folder := filepath.Join(f.trash, key)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("cannot make a folder in the trash: %w", err)
	}
	to := filepath.Join(folder, filepath.Base(path))
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); os.IsNotExist(err) {
			break
		}
		to = filepath.Join(folder, fmt.Sprintf("%s.%d", short(filepath.Base(path)), n))
	}
	if err := os.Rename(path, to); err == nil || os.IsNotExist(err) {
		return nil
	}
	if err := copyTo(path, to); err != nil { // on another disk
		return fmt.Errorf("cannot move %s to the trash: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	return nil
}

// short is a name to which a few bytes can be added: file systems have at most 255 in one.
func short(name string) string {
	if len(name) <= 200 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:100], "") + hex.EncodeToString(sum[:16])
}

func copyTo(from, to string) error {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, _, err = digest(from, out)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// unmake removes what an effect has made where nothing was: a file goes to the trash, and the
// folders on the way are removed, if nothing else is in them.
func (f *Files) unmake(b, now Entry, key string) error {
	folders, child := b.Missing, ""
	if now.Kind == File && len(folders) > 0 {
		child, folders = filepath.Base(now.Path), folders[:len(folders)-1]
	}
	for _, path := range slices.Backward(folders) {
		entries, err := os.ReadDir(path)
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("cannot look into %s: %w", path, err)
		}
		var names []string
		for _, e := range entries {
			if e.Name() != child {
				names = append(names, e.Name())
			}
		}
		if len(names) > 0 {
			return &Changed{path, fmt.Sprintf("is not empty: it has %s by now",
				strings.Join(names[:min(len(names), 5)], ", "))}
		}
		child = filepath.Base(path)
	}
	if now.Kind == File {
		if err := f.discard(now.Path, key); err != nil {
			return err
		}
	}
	for _, path := range slices.Backward(folders) {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("cannot remove %s: %w", path, err)
		}
	}
	return nil
}

// half reports whether folders are there that an effect has made on its way.
func half(b Entry) bool {
	return slices.ContainsFunc(b.Missing, func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	})
}

// rewrite gives a file its bytes, mode and times back, all at once.
func (f *Files) rewrite(b Entry) error {
	draft := filepath.Join(filepath.Dir(b.Path), "."+short(filepath.Base(b.Path))+".sagenbaum")
	if err := os.Remove(draft); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("cannot put back %s: %w", b.Path, err)
	}
	defer os.Remove(draft) // it fails once the draft has its name
	if err := f.content(b, draft); err != nil {
		return err
	}
	if err := dress(draft, b); err != nil {
		return err
	}
	if err := os.Rename(draft, b.Path); err != nil {
		return fmt.Errorf("cannot put back %s: %w", b.Path, err)
	}
	if err := syncFolder(filepath.Dir(b.Path)); err != nil {
		return fmt.Errorf("cannot put back %s: %w", b.Path, err)
	}
	return nil
}

// content writes the bytes of an image, and checks them.
func (f *Files) content(b Entry, to string) error {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot put back %s: %w", b.Path, err)
	}
	var sum string
	if b.Blob {
		sum, _, err = digest(filepath.Join(f.blobs, filepath.Base(b.SHA256)), out)
		if errors.Is(err, os.ErrNotExist) {
			err = &Changed{b.Path, "cannot be put back: its image " + b.SHA256 + " is not in " + f.blobs}
		}
	} else {
		var content []byte
		content, err = base64.StdEncoding.DecodeString(b.Content)
		if err == nil {
			_, err = out.Write(content)
		}
		hash := sha256.Sum256(content)
		sum = hex.EncodeToString(hash[:])
	}
	if err == nil && sum != b.SHA256 {
		err = &Changed{b.Path, "cannot be put back: its image is damaged"}
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// dress gives a file or folder the owner, mode, extended attributes and times of an entry.
func dress(path string, b Entry) error {
	if err := chown(path, b.Owner); err != nil {
		return fmt.Errorf("cannot give %s its owner back: %w", b.Path, err)
	}
	if b.Attributes != "" { // only who may write to it may give it some
		if err := errors.Join(os.Chmod(path, fileMode(b.Mode|ownerWrites)),
			setAttributes(path, b.Attributes)); err != nil {
			return fmt.Errorf("cannot give %s its extended attributes back: %w", b.Path, err)
		}
	}
	if err := os.Chmod(path, fileMode(b.Mode)); err != nil { // as in its access list, too
		return fmt.Errorf("cannot give %s its mode back: %w", b.Path, err)
	}
	return dressTimes(path, b)
}

// ownerWrites is the mode by which the owner of a file may write to it.
const ownerWrites = 0o200

// dressTimes gives a file or folder the times of an entry.
func dressTimes(path string, b Entry) error {
	modified, err := time.Parse(time.RFC3339Nano, b.Modified)
	if err != nil {
		return ledger.Refuse("before.modified", err.Error(), "a time")
	}
	// one that cannot be read stays as it is
	last, _ := time.Parse(time.RFC3339Nano, b.Accessed)
	if err := os.Chtimes(path, last, modified); err != nil {
		return fmt.Errorf("cannot give %s its time back: %w", b.Path, err)
	}
	return nil
}

// sweep moves what an effect that was cut short has left beside a file to the trash.
func (f *Files) sweep(b Entry, u Undo) error {
	pattern, err := regexp.Compile(`\A(?:` + u.Litter + `)\z`)
	if err != nil {
		return ledger.Refuse("litter", err.Error(), "a regular expression")
	}
	entries, err := os.ReadDir(filepath.Dir(b.Path))
	if err != nil {
		return nil // there is nothing beside it
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filepath.Base(b.Path))
		if ok && rest != "" && e.Type().IsRegular() && pattern.MatchString(rest) {
			if err := f.discard(filepath.Join(filepath.Dir(b.Path), e.Name()), u.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// MoveBack undoes a move: the first entry is what was moved, the second where it went. Errors as
// of Restore.
func (f *Files) MoveBack(u Undo) error {
	if len(u.Before.Entries) != 2 {
		return ledger.Refuse(
			"before.entries",
			fmt.Sprint(len(u.Before.Entries)),
			"source and destination",
		)
	}
	source, destination := u.Before.Entries[0], u.Before.Entries[1]
	from, err := f.now(destination)
	if err != nil {
		return err
	}
	to, err := f.now(source)
	if err != nil {
		return err
	}
	moved := from.Kind == source.Kind &&
		(from.Kind == File && from.SHA256 == source.SHA256 || from.Identity == source.Identity)
	switch {
	case source.Kind == Absent || destination.Kind != Absent:
		return nil // such a move does not happen
	case to.Kind == source.Kind && from.Kind == Absent &&
		(to.Identity == source.Identity || to.Kind == File && to.SHA256 == source.SHA256):
		return nil // it did not happen, or is undone; what was written since may be, too
	case from.Kind == Absent:
		return &Changed{destination.Path, "is gone: someone has deleted or moved it since"}
	case !moved:
		return &Changed{destination.Path, "is not what was moved there"}
	case to.Kind != Absent:
		return &Changed{source.Path, "is there again: moving back would overwrite it"}
	}
	if _, err := os.Stat(filepath.Dir(source.Path)); err != nil {
		return &Changed{filepath.Dir(source.Path), "is gone: there is no folder to move back to"}
	}
	if err := os.Rename(destination.Path, source.Path); err != nil {
		return fmt.Errorf("cannot move %s back: %w", destination.Path, err)
	}
	return errors.Join(
		settleAnchor(source, to, u.after(0)),
		settleAnchor(destination, from, u.after(1)),
	)
}
