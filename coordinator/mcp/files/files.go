package files

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/sagenbaum/sagenbaum/ledger"
)

const (
	// SizeMax is the largest file, in bytes, of which an image is taken.
	SizeMax = 64 << 20

	// inlineMax is the largest file whose bytes are in the image itself.
	inlineMax = 6 << 10

	pathsMax = 8 // in one image
)

// Config is what New needs.
type Config struct {
	// Roots are the folders that paths must be in, at least one. A relative path begins at the
	// first root that it stays in.
	Roots []string

	// Gone are folders that were roots when an image was taken, and are not there any more.
	Gone []string

	// State is the folder of blobs and trash; made if missing.
	State string
}

// Files takes images of files below its roots and puts them back. It is safe for concurrent use;
// who changes the same files at the same time decides the order.
type Files struct {
	roots []string // resolved
	gone  []string
	blobs string
	trash string
}

// New checks the configuration and makes the folders. Errors: *ledger.Refused, or those of the
// file system.
func New(config Config) (*Files, error) {
	if len(config.Roots) == 0 {
		return nil, ledger.Refuse("files.roots", "missing", "at least one folder")
	}
	if config.State == "" {
		return nil, ledger.Refuse("files.state", "missing", "a folder for blobs and trash")
	}
	f := &Files{blobs: filepath.Join(config.State, "blobs"),
		trash: filepath.Join(config.State, "trash"), gone: config.Gone}
	for _, root := range config.Roots {
		absolute, err := filepath.Abs(Home(root))
		if err == nil {
			absolute, err = filepath.EvalSymlinks(absolute)
		}
		if err != nil {
			return nil, ledger.Refuse("files.roots", err.Error(), "folders that are there")
		}
		f.roots = append(f.roots, absolute)
	}
	for _, dir := range []string{f.blobs, f.trash} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot keep images of files: %w", err)
		}
	}
	return f, nil
}

// Changed says that a path is neither what an effect has left nor what was before it: putting the
// image back would destroy what someone else has done.
type Changed struct {
	Path    string
	Problem string
}

// Error names the path and what is there.
func (c *Changed) Error() string { return c.Path + " " + c.Problem }

// Code is what is recorded beside the message.
func (c *Changed) Code() string { return "changed" }

// within reports whether a path, clean and absolute, is one of the roots or below one.
func (f *Files) within(path string) bool { return below(path, f.roots) != "" }

// below is the first of some folders that a path is, or is in; empty: there is none.
func below(path string, folders []string) string {
	for _, root := range folders {
		rest, ok := strings.CutPrefix(path, root)
		if ok && (rest == "" || root == string(filepath.Separator) || rest[0] == filepath.Separator) {
			return root
		}
	}
	return ""
}

// Home is a path with the home folder for a ~ at its beginning.
func Home(path string) string {
	if home, err := os.UserHomeDir(); err == nil && (path == "~" || strings.HasPrefix(path, "~/")) {
		return filepath.Join(home, strings.TrimPrefix(path, "~"))
	}
	return path
}

// absolute finds what a path that a client wrote means.
func (f *Files) absolute(path string) string {
	path = Home(path)
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	for _, root := range f.roots {
		if joined := filepath.Join(root, path); f.within(joined) {
			return joined
		}
	}
	return filepath.Join(f.roots[0], path)
}

// resolve finds the file that a path leads to, through links, and the part of the path that is
// not there yet, from its first missing folder.
func (f *Files) resolve(path string) (resolved string, missing []string, err error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return "", nil, ledger.Refuse("path", fmt.Sprintf("%q", path), "a path")
	}
	at := f.absolute(path)
	var rest []string
	for {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			resolved = real
			break
		}
		if !os.IsNotExist(err) {
			return "", nil, fmt.Errorf("cannot look at %s: %w", path, err)
		}
		if _, err := os.Lstat(at); err == nil {
			return "", nil, ledger.Refuse("path", at+" is a link that leads nowhere", "a file or folder")
		}
		if parent := filepath.Dir(at); parent != at {
			rest = append([]string{filepath.Base(at)}, rest...)
			at = parent
			continue
		}
		return "", nil, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if resolved, rest, err = sameName(resolved, rest); err != nil {
		return "", nil, err
	}
	for _, name := range rest {
		resolved = filepath.Join(resolved, name)
		missing = append(missing, resolved)
	}
	if !utf8.ValidString(resolved) { // in JSON it would be another path, as it is to some servers
		return "", nil, ledger.Refuse("path", fmt.Sprintf("%s leads to %q, which is not UTF-8", path,
			resolved), "a path whose names are")
	}
	if !f.within(resolved) {
		return "", nil, ledger.Refuse("path", resolved+" is outside of "+strings.Join(f.roots, ", "),
			"a path in one of the folders")
	}
	return resolved, missing, nil
}

// sameName follows names that are there in another Unicode form, as servers do.
func sameName(folder string, rest []string) (string, []string, error) {
	for len(rest) > 0 && !oneForm(rest[0]) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return "", nil, fmt.Errorf("cannot look at %s: %w", folder, err)
		}
		var found []string
		for _, e := range entries {
			if norm.NFC.String(e.Name()) == norm.NFC.String(rest[0]) {
				found = append(found, e.Name())
			}
		}
		switch {
		case len(found) > 1:
			return "", nil, ledger.Refuse("path", rest[0]+" is there in several Unicode forms",
				"a name that one file has")
		case len(found) == 0:
			return folder, rest, nil
		}
		if folder, err = filepath.EvalSymlinks(filepath.Join(folder, found[0])); err != nil {
			return "", nil, fmt.Errorf("cannot look at %s: %w", found[0], err)
		}
		rest = rest[1:]
	}
	return folder, rest, nil
}

// oneForm reports whether a name has no other Unicode form: one in ASCII has none, but for the
// signs that another character is the same as (K is the Kelvin sign's normal form).
func oneForm(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x80 || strings.IndexByte("K;`", text[i]) >= 0 {
			return false
		}
	}
	return true
}

// Prune removes blobs and trash that are older than an age.
func (f *Files) Prune(age time.Duration) error {
	var first error
	limit := time.Now().Add(-age)
	for _, dir := range []string{f.blobs, f.trash} {
		entries, err := os.ReadDir(dir)
		first = cmp.Or(first, err)
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.ModTime().Before(limit) {
				first = cmp.Or(first, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	if first != nil {
		return fmt.Errorf("cannot remove old images: %w", first)
	}
	return nil
}
