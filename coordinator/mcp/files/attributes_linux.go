package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// isKept reports whether an extended attribute is one that the users of a file give it, or its
// access control list or capabilities. What the system gives by itself, as the label of SELinux, is
// never read nor set.
func isKept(name string) bool {
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.posix_acl_") ||
		name == "security.capability"
}

// attributes are Entry.Attributes of a file or folder.
func attributes(path string) string {
	held, err := attributesOf(path)
	if err != nil {
		return "" // no one may know, or the file system has none
	}
	if len(held) == 0 {
		return noAttributes
	}
	size, text := 0, held.Encode()
	for name, values := range held {
		size += len(name) + len(values[0])
	}
	if size > attributesMax {
		sum := sha256.Sum256([]byte(text))
		return manyAttributes + hex.EncodeToString(sum[:])
	}
	return text
}

func attributesOf(path string) (url.Values, error) {
	names, err := grown(func(buffer []byte) (int, error) { return unix.Llistxattr(path, buffer) })
	if err != nil {
		return nil, err
	}
	held := url.Values{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if !isKept(name) {
			continue
		}
		value, err := grown(func(buffer []byte) (int, error) {
			return unix.Lgetxattr(path, name, buffer)
		})
		if errors.Is(err, unix.ENODATA) {
			continue // it went meanwhile
		}
		if err != nil {
			return nil, err
		}
		held.Set(name, string(value))
	}
	return held, nil
}

// grown reads into a buffer that is large enough.
func grown(read func(buffer []byte) (int, error)) ([]byte, error) {
	for {
		size, err := read(nil)
		if err != nil || size == 0 {
			return nil, err
		}
		buffer := make([]byte, size)
		size, err = read(buffer)
		if errors.Is(err, unix.ERANGE) {
			continue // it has grown meanwhile
		}
		return buffer[:max(size, 0)], err
	}
}

// setAttributes gives a file or folder its attributes back, as far as this process may.
func setAttributes(path, text string) error {
	if text == "" || tooMany(text) {
		return nil // not known
	}
	wanted := url.Values{}
	if text != noAttributes {
		var err error
		if wanted, err = url.ParseQuery(text); err != nil {
			return ledger.Refuse("before.attributes", err.Error(), "names and values, as in a URL")
		}
	}
	held, err := attributesOf(path)
	if err != nil {
		return allowed(err)
	}
	for name := range held {
		if !wanted.Has(name) {
			err = errors.Join(err, allowed(unix.Lremovexattr(path, name)))
		}
	}
	for name := range wanted {
		if !isKept(name) {
			return ledger.Refuse("before.attributes", fmt.Sprintf("%q", name),
				"user.*, an access control list or capabilities")
		}
		if value := wanted.Get(name); !held.Has(name) || held.Get(name) != value {
			err = errors.Join(err, allowed(unix.Lsetxattr(path, name, []byte(value), 0)))
		}
	}
	return err
}

// allowed leaves out the errors of what this process may not do, or its file system cannot.
func allowed(err error) error {
	for _, of := range []error{unix.EPERM, unix.EACCES, unix.ENOTSUP, unix.ENOSYS} {
		if errors.Is(err, of) {
			return nil
		}
	}
	return err
}
