package store

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sagenbaum/sagenbaum/executor/sim"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// crashingStore is the state of a simulated host in a real Pebble, on a disk that
// loses what was not synced.
type crashingStore struct {
	*KV
	t     *testing.T
	disk  *vfs.MemFS
	db    *pebble.DB
	r     *rand.Rand
	crash *int // power cuts, of all stores
}

func newCrashingStore(t *testing.T, r *rand.Rand, crashes *int) *crashingStore {
	s := &crashingStore{t: t, disk: vfs.NewCrashableMem(), r: r, crash: crashes}
	s.open()
	return s
}

func (s *crashingStore) open() {
	db, err := pebble.Open("state", &pebble.Options{
		FS: s.disk, FormatMajorVersion: pebble.FormatValueSeparation, MemTableSize: 1 << 18,
		DisableAutomaticCompactions: true,
		Logger:                      pebbleLog{slog.New(slog.NewTextHandler(io.Discard, nil))},
	})
	if err != nil {
		s.t.Fatalf("a crash broke the state store: %v", err)
	}
	s.db, s.KV = db, NewKV(db, "t")
}

func (s *crashingStore) Commit() { s.KV.Commit() }

// Crash cuts the power: of what was not synced a random share is there afterwards.
func (s *crashingStore) Crash(lost int) {
	if lost == 0 {
		s.Forget()
		return
	}
	*s.crash++
	disk := s.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 - lost, RNG: s.r})
	s.Close()
	s.disk = disk
	s.open()
}

func (s *crashingStore) Wipe() {
	if err := s.KV.Wipe(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *crashingStore) Close() {
	if err := s.db.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// Worlds whose hosts keep their state in Pebble and lose power: whatever prefix of it
// is left, the rest is folded again, and every rule holds.
func TestWorldsOverPebbleSurvivePowerCuts(t *testing.T) {
	t.Parallel()
	worlds, crashes := testenv.Cases(20, 40), 0
	for seed := uint64(0); worlds > 0; seed++ {
		if !sim.FaultsOf(seed).Has(sim.FaultPowerCut) {
			continue
		}
		worlds--
		r := rand.New(rand.NewPCG(seed, 1))
		result := sim.Run(sim.Options{Seed: seed, Open: func() sim.Store { return newCrashingStore(t, r, &crashes) }})
		for _, v := range result.Violations {
			t.Errorf("seed %d: %s", seed, v)
		}
	}
	if crashes < 10 {
		t.Errorf("only %d power cuts", crashes)
	}
	t.Logf("%d power cuts", crashes)
}
