package vault

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Rewrap puts all keys of a folder under another master key. No other key, and nothing that
// was sealed, is written again: what opens it is the tenant's key, which stays the same.
//
// Until switched is called, the old master key opens all keys of the folder; from then on the
// new one does. So a process that is killed leaves a folder that one of them opens, and the
// next Rewrap, from either, goes on where this one ended: each file is first given the second
// wrapping, and loses the first one when all have both. switched is where the caller puts the
// new key in the place of the old one; it may be nil. It returns how many keys there are.
//
// The error is a *ledger.Refused where neither master key opens a tenant's key, or the file
// system's.
func (f *Folder) Rewrap(before, after []byte, switched func() error) (keys int, err error) {
	from, to := MasterKeyID(before), MasterKeyID(after)
	if from == to {
		return 0, ledger.Refuse("master key", "the new one is the old one, "+from,
			"another one: openssl rand -hex 32")
	}
	err = f.locked(func() error {
		tenants, err := f.Tenants()
		if err != nil {
			return err
		}
		keys = len(tenants)
		for _, tenant := range tenants {
			if err := f.rewrap(tenant, before, after); err != nil {
				return err
			}
		}
		if switched != nil {
			if err := switched(); err != nil {
				return err
			}
		}
		for _, tenant := range tenants {
			if err := f.dropOther(tenant, to); err != nil {
				return err
			}
		}
		return nil
	})
	return keys, err
}

// rewrap adds the wrapping under the second master key, where it is missing.
func (f *Folder) rewrap(tenant string, before, after []byte) error {
	file, err := f.read(tenant)
	if err != nil {
		return err
	}
	if _, err := file.unwrap(after); err == nil {
		return nil
	}
	plain, err := file.unwrap(before)
	if err != nil {
		var refused *ledger.Refused
		if errors.As(err, &refused) {
			return ledger.Refuse(refused.Field, fmt.Sprintf("neither the old nor the new master key "+
				"opens the key of tenant %s", tenant), refused.Want)
		}
		return err
	}
	box, err := wrap(after, plain, boundTenant(tenant, file.ID))
	if err != nil {
		return err
	}
	file.Wrapped = append(file.Wrapped, wrapping{MasterKeyID(after), box})
	return f.write(file)
}

// dropOther keeps of a file only what is wrapped under one master key.
func (f *Folder) dropOther(tenant, master string) error {
	file, err := f.read(tenant)
	if err != nil {
		return err
	}
	if len(file.Wrapped) == 1 && file.Wrapped[0].Master == master {
		return nil
	}
	file.Wrapped = slices.DeleteFunc(file.Wrapped, func(w wrapping) bool { return w.Master != master })
	return f.write(file)
}
