package serve

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/masterkey"
)

// keeping says where the keys are that open what is sealed: outside the data, so that who
// copies the data does not copy them.
type keeping struct {
	source     masterkey.Source
	tenantKeys string // folder of the keys of tenants; empty: DATA.keys

	master     []byte // once it was read
	masterFile string // from where; empty: from no file
}

func (k *keeping) flags(f *pflag.FlagSet) {
	k.source.Flags(f, "master-key", masterkey.Variable,
		"`FILE` of the key that wraps the keys of tenants, outside --data: 64 hex digits, the same on "+
			"every host (default TENANT-KEYS/master.key, made if missing; none with --nats)")
	f.StringVar(&k.tenantKeys, "tenant-keys", "",
		"`DIR` of the keys of tenants, outside --data (default DATA.keys, beside --data)")
}

// masterKey reads the master key, once, and says in which folder the keys of tenants are. A
// host on its own server makes a master key at its first start; on a server that runs
// elsewhere there may be other hosts, which need the same. None of both: no key, and sensitive
// fields are refused.
func (v *serving) masterKey(ctx context.Context) (master []byte, folder string, err error) {
	if v.master == nil && !v.source.Given() && v.external != "" {
		return nil, "", nil
	}
	if folder, err = masterkey.Folder(v.tenantKeys, v.data); err != nil || v.master != nil {
		return v.master, folder, err
	}
	if v.source.Given() {
		v.master, err = v.source.Read(ctx, v.data)
		v.masterFile = v.source.File()
	} else {
		v.master, err = masterkey.Default(folder, v.data)
		v.masterFile = filepath.Join(folder, masterkey.DefaultName)
	}
	return v.master, folder, err
}

// explainKeys turns what a host said of the folder of tenants' keys into words about the
// command line.
func explainKeys(err error) error {
	var refused *ledger.Refused
	if errors.As(err, &refused) && (refused.Field == "master key" || refused.Field == "tenant keys") {
		return cli.Fail(cli.ExitFailed, refused.Want, "cannot serve: %s", refused.Problem)
	}
	return err
}
