package files

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// attributesMax is how many bytes the extended attributes of a file may have, names and values: an
// image carries them.
const attributesMax = 2 << 10

// attributes are the extended attributes of a file or folder that its users give it, with its
// access control lists and capabilities, in one text; what the system gives by itself, as the label
// of SELinux, is not among them. noAttributes: there are none. The error is a *ledger.Refused for
// more than attributesMax bytes.
func attributes(path string) (string, error) {
	held, err := attributesOf(path)
	if err != nil {
		return "", err
	}
	size := 0
	for name, values := range held {
		size += len(name) + len(values[0])
	}
	switch {
	case size > attributesMax:
		return "", ledger.Refuse("path",
			fmt.Sprintf("%s has extended attributes of %d bytes", path, size),
			fmt.Sprintf("a file with at most %d bytes of them, which can be put back", attributesMax))
	case len(held) == 0:
		return noAttributes, nil
	}
	return held.Encode(), nil
}

func attributesOf(path string) (url.Values, error) {
	held := url.Values{}
	names, err := grown(func(buffer []byte) (int, error) { return unix.Llistxattr(path, buffer) })
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return held, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the extended attributes of %s: %w", path, err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if !strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "system.posix_acl_") &&
			name != "security.capability" {
			continue
		}
		value, err := grown(func(buffer []byte) (int, error) {
			return unix.Lgetxattr(path, name, buffer)
		})
		switch {
		case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
			continue // it went meanwhile, or is not for this user to read
		case err != nil:
			return nil, fmt.Errorf("cannot read the extended attribute %s of %s: %w", name, path, err)
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
	if text == "" {
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
		return err
	}
	for name := range held {
		if !wanted.Has(name) {
			err = errors.Join(err, allowed(unix.Lremovexattr(path, name)))
		}
	}
	for name := range wanted {
		if value := wanted.Get(name); !held.Has(name) || held.Get(name) != value {
			err = errors.Join(err, allowed(unix.Lsetxattr(path, name, []byte(value), 0)))
		}
	}
	return err
}

// allowed leaves out the errors of what this process may not do, or its file system cannot.
func allowed(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
