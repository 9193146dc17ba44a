package main

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"os"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
)

// Sizes of a shelf's files.
const (
	slotLen   = 16      // sum of the key, and where it is, and one more; 0: it is free
	slotsMin  = 1 << 12 // of the first index
	slotsRead = 4       // at once: most keys are among the first ones
	rowHead   = 8       // lengths of key and value
)

// fileShelf keeps values in two temporary files: rows that are only added, and an index
// of them by the sums of their keys. Only a tail of the rows is in memory.
type fileShelf struct {
	rows  growing
	index *os.File
	slots uint64 // a power of two, at most half of them taken
	taken uint64
	seed  maphash.Seed // no one can choose keys that fall together
	row   []byte
	err   error // of the first read or write that failed
}

func newFileShelf() (*fileShelf, error) {
	s := &fileShelf{seed: maphash.MakeSeed()}
	var err error
	if s.rows.file, err = temporary(); err == nil {
		err = s.grow(slotsMin)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// files are the temporary files of one check.
type files struct {
	leaves *leafFile
	shelf  *fileShelf
}

func newFiles() (*files, error) {
	shelf, err := newFileShelf()
	if err != nil {
		return nil, err
	}
	leaves, err := newLeafFile(shelf)
	if err != nil {
		shelf.close()
		return nil, err
	}
	return &files{leaves, shelf}, nil
}

func (f *files) memory() audit.Memory { return audit.Memory{Leaves: f.leaves, Shelf: f.shelf} }

// failed is the first read or write that failed: what was found after it means nothing.
func (f *files) failed() error { return errors.Join(f.leaves.err, f.shelf.err) }

func (f *files) close() {
	f.leaves.close()
	f.shelf.close()
}

// temporary makes a file that no one else finds. Where a file that is open can be
// removed, nothing is left of it however the process ends.
func temporary() (*os.File, error) {
	f, err := os.CreateTemp("", "sagenbaum-verify-*")
	if err == nil {
		_ = os.Remove(f.Name())
	}
	return f, err
}

func discard(f *os.File) {
	if f != nil {
		_ = errors.Join(f.Close(), os.Remove(f.Name()))
	}
}

func (s *fileShelf) close() {
	discard(s.rows.file)
	discard(s.index)
}

// grow makes an index of so many slots, with what is in the old one.
func (s *fileShelf) grow(slots uint64) error {
	index, err := temporary()
	if err != nil {
		return err
	}
	old, n := s.index, s.slots
	if err = index.Truncate(int64(slots * slotLen)); err != nil {
		discard(index)
		return err
	}
	s.index, s.slots = index, slots
	defer discard(old)
	part := make([]byte, 64<<10)
	for at := uint64(0); at < n*slotLen; at += uint64(len(part)) {
		part = part[:min(uint64(len(part)), n*slotLen-at)]
		if _, err := old.ReadAt(part, int64(at)); err != nil {
			return err
		}
		for slot := part; len(slot) > 0; slot = slot[slotLen:] {
			if binary.BigEndian.Uint64(slot[8:]) == 0 {
				continue
			}
			free, _, err := s.find(binary.BigEndian.Uint64(slot), nil)
			if err == nil {
				_, err = index.WriteAt(slot[:slotLen], int64(free*slotLen))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// find looks for the slot of a key with a sum, or for the free one where it would be;
// at is where its row is, and one more. No key: the free one is wanted.
func (s *fileShelf) find(sum uint64, key []byte) (slot, at uint64, err error) {
	var part [slotsRead * slotLen]byte
	for n := sum & (s.slots - 1) &^ (slotsRead - 1); ; n = (n + slotsRead) & (s.slots - 1) {
		if _, err := s.index.ReadAt(part[:], int64(n*slotLen)); err != nil {
			return 0, 0, err
		}
		for i := range uint64(slotsRead) {
			row := part[i*slotLen:]
			at := binary.BigEndian.Uint64(row[8:])
			if at == 0 {
				return n + i, 0, nil
			}
			if key == nil || binary.BigEndian.Uint64(row) != sum {
				continue
			}
			have, _, err := s.read(at - 1)
			if err != nil || string(have) == string(key) {
				return n + i, at, err
			}
		}
	}
}

// read reads a row.
func (s *fileShelf) read(at uint64) (key, value []byte, err error) {
	var head [rowHead]byte
	if err := s.rows.read(head[:], int64(at)); err != nil {
		return nil, nil, err
	}
	n, m := binary.BigEndian.Uint32(head[:]), binary.BigEndian.Uint32(head[4:])
	if uint64(cap(s.row)) < uint64(n)+uint64(m) {
		s.row = make([]byte, uint64(n)+uint64(m))
	}
	s.row = s.row[:n+m]
	err = s.rows.read(s.row, int64(at)+rowHead)
	return s.row[:n], s.row[n:], err
}

// Put implements audit.Shelf.
func (s *fileShelf) Put(key string, value []byte) {
	sum := maphash.String(s.seed, key)
	slot, at, err := s.find(sum, []byte(key))
	if err == nil && at == 0 {
		if s.taken++; 2*s.taken > s.slots {
			if err = s.grow(2 * s.slots); err == nil {
				slot, _, err = s.find(sum, nil)
			}
		}
	}
	var row [slotLen]byte
	binary.BigEndian.PutUint64(row[:], sum)
	binary.BigEndian.PutUint64(row[8:], uint64(s.rows.size)+1)
	if err == nil {
		_, err = s.index.WriteAt(row[:], int64(slot*slotLen))
	}
	data := make([]byte, 0, rowHead+len(key)+len(value))
	data = binary.BigEndian.AppendUint32(data, uint32(len(key)))
	data = binary.BigEndian.AppendUint32(data, uint32(len(value)))
	data = append(append(data, key...), value...)
	s.failed(errors.Join(err, s.rows.add(data)))
}

// Get implements audit.Shelf.
func (s *fileShelf) Get(key string) ([]byte, bool) {
	_, at, err := s.find(maphash.String(s.seed, key), []byte(key))
	if s.failed(err); err != nil || at == 0 {
		return nil, false
	}
	_, value, err := s.read(at - 1)
	s.failed(err)
	return value, err == nil
}

// Each implements audit.Shelf, in the order in which the values were put.
func (s *fileShelf) Each(prefix string, each func(key string, value []byte)) {
	end := uint64(s.rows.size)
	for at := uint64(0); at < end && s.err == nil; {
		key, value, err := s.read(at)
		name, here := string(key), at
		if at += rowHead + uint64(len(key)) + uint64(len(value)); err == nil &&
			len(name) >= len(prefix) && name[:len(prefix)] == prefix {
			value = append([]byte(nil), value...)
			var last uint64
			if _, last, err = s.find(maphash.String(s.seed, name), []byte(name)); err == nil &&
				last == here+1 {
				each(name, value)
			}
		}
		s.failed(err)
	}
}

func (s *fileShelf) failed(err error) {
	if s.err == nil {
		s.err = err
	}
}

// shelvedLeaves are leaves on a shelf.
type shelvedLeaves struct{ shelf *fileShelf }

func leafKey(sequence uint64, index uint32) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64([]byte{'L'},
		sequence), index))
}

// Put implements audit.Leaves.
func (l shelvedLeaves) Put(sequence uint64, index uint32, leaf [ledger.LeafSize]byte,
	refused bool) {
	l.shelf.Put(leafKey(sequence, index), leafRow(leaf, refused))
}

// Get implements audit.Leaves.
func (l shelvedLeaves) Get(sequence uint64, index uint32) (leaf [ledger.LeafSize]byte, refused,
	known bool) {
	row, known := l.shelf.Get(leafKey(sequence, index))
	if !known || len(row) != leafLen {
		return leaf, false, false
	}
	leaf, refused = readLeaf(row)
	return leaf, refused, true
}
