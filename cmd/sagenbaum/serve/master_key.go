package serve

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/host"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// masterKeyFile is where a host on its own server keeps its master key, below the data.
const masterKeyFile = "master.key"

// masterKey reads what the keys of plans are wrapped with: 64 hex digits. A host on its
// own server makes one at its first start; on a server that runs elsewhere there may be
// other hosts, which need the same. None of both: nil, and sensitive fields are refused.
func (v *serving) masterKey() ([]byte, error) {
	file := v.master
	if file == "" {
		if v.external != "" {
			return nil, nil
		}
		file = filepath.Join(v.data, masterKeyFile)
		if err := makeMasterKey(file); err != nil {
			return nil, cli.Fail(cli.ExitFailed, "--master-key FILE",
				"cannot make the master key: %v", err)
		}
	}
	const hint = "openssl rand -hex 32 > FILE; chmod 600 FILE; the same on every host of these " +
		"tenants"
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, cli.Fail(cli.ExitFailed, hint, "cannot read the master key: %v", err)
	}
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, cli.Fail(cli.ExitFailed, "chmod 600 "+file,
			"the master key %s can be read by others (mode %04o)", file, info.Mode().Perm())
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != host.MasterKeySize {
		return nil, cli.Fail(cli.ExitFailed, hint, "the master key %s is not %d hex digits", file,
			2*host.MasterKeySize)
	}
	return key, nil
}

// makeMasterKey makes a key where there is none. It is synced before it is there, so
// that a power cut leaves a whole one or none.
func makeMasterKey(file string) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key := make([]byte, host.MasterKeySize)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(file), masterKeyFile+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = out.WriteString(hex.EncodeToString(key) + "\n")
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	if err := os.Rename(out.Name(), file); err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	folder, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
