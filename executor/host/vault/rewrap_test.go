package vault

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

var (
	oldMaster = bytes.Repeat([]byte{1}, MasterKeySize)
	newMaster = bytes.Repeat([]byte{2}, MasterKeySize)
	errKilled = errors.New("killed")
)

// filled makes a folder with the keys of three tenants under the old master key.
func filled(t *testing.T) (*Folder, map[string]TenantKey) {
	t.Helper()
	f, err := OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]TenantKey{}
	for _, tenant := range []string{"a", "b", "c"} {
		key, err := newTenantKey()
		if err == nil {
			err = f.put(tenant, key, oldMaster, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		keys[tenant] = key
	}
	return f, keys
}

// killAt has the n-th thing that is done to the disk, and all after it, not happen. It returns
// how many were tried.
func killAt(f *Folder, n int) *int {
	done := new(int)
	f.disk.step = func(string, string) error {
		if *done++; *done >= n {
			return errKilled
		}
		return nil
	}
	return done
}

// same checks that a master key opens all keys, and that they are those that were made.
func same(t *testing.T, when string, f *Folder, master []byte, keys map[string]TenantKey) {
	t.Helper()
	for tenant, want := range keys {
		key, _, err := f.open(tenant, master)
		if err != nil || key.ID != want.ID || !bytes.Equal(key.key, want.key) {
			t.Fatalf("%s: %s: %v", when, tenant, err)
		}
	}
}

// TestARewrapThatIsKilledLeavesAFolderThatOneMasterKeyOpens, wherever it is killed: the old one
// until the switch, the new one from then on. Run again, it ends.
func TestARewrapThatIsKilledLeavesAFolderThatOneMasterKeyOpens(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		f, keys := filled(t)
		killAt(f, n)
		switched := false
		count, err := f.Rewrap(oldMaster, newMaster, func() error {
			if err := f.disk.before("switch", ""); err != nil {
				return err
			}
			switched = true
			return nil
		})
		when := fmt.Sprintf("killed at step %d, switched: %v", n, switched)
		again, open := OpenFolder(f.Dir())
		if open != nil {
			t.Fatalf("%s: %v", when, open)
		}
		opens := oldMaster
		if switched {
			opens = newMaster
		}
		same(t, when, again, opens, keys)
		if err == nil {
			if n < 20 || count != 3 {
				t.Fatalf("%d steps, %d keys", n, count)
			}
			if again.Check(oldMaster) == nil {
				t.Error("the old master key opens keys still")
			}
			return
		}
		if !errors.Is(err, errKilled) {
			t.Fatalf("%s: %v", when, err)
		}
		if _, err := again.Rewrap(oldMaster, newMaster, nil); err != nil {
			t.Fatalf("%s, again: %v", when, err)
		}
		same(t, when+", again", again, newMaster, keys)
		for tenant := range keys {
			if file, err := again.read(tenant); err != nil || len(file.Wrapped) != 1 {
				t.Errorf("%s: %+v, %v", when, file, err)
			}
		}
	}
}

// TestADestructionThatIsKilledIsFinishedByTheNextProcess, and leaves the keys of others.
func TestADestructionThatIsKilledIsFinishedByTheNextProcess(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		f, keys := filled(t)
		text, err := os.ReadFile(f.path("b"))
		if err != nil {
			t.Fatal(err)
		}
		killAt(f, n)
		ended := f.Destroy("b")
		again, err := OpenFolder(f.Dir())
		if err == nil {
			err = again.Check(oldMaster)
		}
		if err != nil {
			t.Fatalf("killed at step %d: %v", n, err)
		}
		for range 2 { // again is harmless
			if err := again.Destroy("b"); err != nil {
				t.Fatalf("killed at step %d, again: %v", n, err)
			}
		}
		if _, _, err := again.open("b", oldMaster); !errors.Is(err, ErrNoTenantKey) {
			t.Fatalf("killed at step %d: %v", n, err)
		}
		delete(keys, "b")
		same(t, "of others", again, oldMaster, keys)
		left, err := filepath.Glob(filepath.Join(f.Dir(), "*", "*b*"))
		if err != nil || len(left) != 0 || len(text) == 0 {
			t.Fatalf("left are %q, %v", left, err)
		}
		if ended == nil {
			if n < 5 {
				t.Fatalf("%d steps", n)
			}
			return
		}
	}
}

// TestAFolderRefusesWhatDoesNotBelongThere, and says what would.
func TestAFolderRefusesWhatDoesNotBelongThere(t *testing.T) {
	t.Parallel()
	f, _ := filled(t)
	refused := func(err error, says string) {
		t.Helper()
		var r *ledger.Refused
		if !errors.As(err, &r) || !strings.Contains(r.Problem, says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	refused(f.Check(newMaster), "wrapped under another master key: "+MasterKeyID(oldMaster)+
		", and this is "+MasterKeyID(newMaster))
	key, err := newTenantKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.put("d", key, newMaster, false); !errors.Is(err, errOtherMaster) || !MayPass(err) {
		t.Errorf("a key under another master key: %v", err)
	}
	_, err = f.Rewrap(newMaster, bytes.Repeat([]byte{3}, MasterKeySize), nil)
	refused(err, "neither the old nor the new master key opens the key of tenant a")
	_, err = f.Rewrap(oldMaster, oldMaster, nil)
	refused(err, "the new one is the old one")
	if err := os.Chmod(f.path("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused(f.Check(oldMaster), "others may read")
	if err := errors.Join(os.Chmod(f.path("a"), 0o600), os.WriteFile(f.path("a"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	refused(f.Check(oldMaster), "is no key of tenant a")
	if err := os.Chmod(filepath.Join(f.Dir(), tenantsFolder), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = OpenFolder(f.Dir())
	refused(err, "others may enter")
}

// TestNoKeyIsWrappedUnderAMasterKeyThatItsFileDoesNotHave: the file was rewrapped, is gone or is
// damaged while the process runs. It passes, and what an agent is told names nothing of the host.
func TestNoKeyIsWrappedUnderAMasterKeyThatItsFileDoesNotHave(t *testing.T) {
	t.Parallel()
	s, dir := newStage(t), t.TempDir()
	k := s.ring(t, oldMaster, dir)
	k.Folder.MasterFile = filepath.Join(dir, "master.key")
	for what, text := range map[string]string{"another": hex.EncodeToString(newMaster), "damaged": "01", "gone": ""} {
		err := os.WriteFile(k.Folder.MasterFile, []byte(text), 0o600)
		if text == "" {
			err = os.Remove(k.Folder.MasterFile)
		}
		if err != nil {
			t.Fatal(err)
		}
		k.until = time.Time{}
		_, err = k.Issue(t.Context(), "agent", "p")
		if !errors.Is(err, errOtherMaster) || !MayPass(err) || Gone(err) {
			t.Errorf("%s: %v", what, err)
		}
		if told := Told(err).Error(); strings.Contains(told, dir) || !strings.Contains(told, "its log says why") {
			t.Errorf("%s: an agent is told %q", what, told)
		}
		if names, err := k.Folder.Tenants(); err != nil || len(names) != 0 {
			t.Fatalf("%s: there are keys of %q, %v", what, names, err)
		}
	}
	if err := os.WriteFile(k.Folder.MasterFile, []byte(hex.EncodeToString(oldMaster)), 0o600); err != nil {
		t.Fatal(err)
	}
	k.until = time.Time{}
	if problem := k.Problem(t.Context()); problem != "" {
		t.Errorf("the tenant has no key yet: %s", problem)
	}
	if _, err := k.Issue(t.Context(), "agent", "p"); err != nil {
		t.Errorf("it has its own again: %v", err)
	}
	wantsProblem := func(want string) {
		t.Helper()
		if problem := k.Problem(t.Context()); !strings.Contains(problem, want) || want == "" && problem != "" {
			t.Errorf("the host says %q, want %q", problem, want)
		}
	}
	wantsProblem("")
	if err := os.WriteFile(k.Folder.MasterFile, []byte(hex.EncodeToString(newMaster)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantsProblem("has the key " + MasterKeyID(newMaster))
	if err := k.Folder.Destroy(k.Tenant); err != nil {
		t.Fatal(err)
	}
	wantsProblem(ErrNoTenantKey.Error())
	k.Master = nil
	wantsProblem(errNoMasterKey.Error())
}

// TestMasterKeysAreReadAsFilesAndKeyServicesGiveThem.
func TestMasterKeysAreReadAsFilesAndKeyServicesGiveThem(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("01", 32), " " + strings.Repeat("01", 32) + "\n",
		"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"} {
		if key, err := ParseMasterKey([]byte(text)); err != nil || !bytes.Equal(key, oldMaster) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "abc", strings.Repeat("01", 31), strings.Repeat("zz", 32)} {
		var r *ledger.Refused
		if _, err := ParseMasterKey([]byte(text)); !errors.As(err, &r) || text != "" && strings.Contains(r.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
