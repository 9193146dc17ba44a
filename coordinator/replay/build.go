package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// BuildVersion is the version of an [Undo] that gives none: the first 12 hex digits of the SHA-256
// of the program that runs, which are others after any change of its code or of what it links. They
// are after a build of the same code with another compiler or other flags, too: what an earlier
// build has registered then waits for a process of that build, as for any other version. The error
// is that of reading the program's file.
var BuildVersion = sync.OnceValues(func() (string, error) {
	// On Linux this is the program that runs, also when another one has taken its place.
	if version, err := fileVersion("/proc/self/exe"); err == nil {
		return version, nil
	}
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find the program that runs: %w", err)
	}
	if info, err := os.Stat(path); err == nil && info.ModTime().After(started) {
		return "", fmt.Errorf("another program has taken the place of the one that runs: %s", path)
	}
	return fileVersion(path)
})

// started is when this program was.
var started = time.Now()

func fileVersion(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the program that runs: %w", err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("cannot read the program that runs: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:versionMax], nil
}
