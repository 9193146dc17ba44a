package main

import (
	"encoding/binary"
	"errors"
	"os"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
)

// leafLen is what a leaf takes in the file: the hash, and whether it was refused.
const leafLen = ledger.LeafSize + 1

// leafRow is a leaf as it is kept, and readLeaf reads it back.
func leafRow(leaf [ledger.LeafSize]byte, refused bool) []byte {
	row := append(leaf[:], 0)
	if refused {
		row[ledger.LeafSize] = 1
	}
	return row
}

func readLeaf(row []byte) (leaf [ledger.LeafSize]byte, refused bool) {
	return [ledger.LeafSize]byte(row), row[ledger.LeafSize] == 1
}

// tailMax is how much of a file is kept in memory until it is written, in bytes.
const tailMax = 1 << 20

// leafFile keeps leaves in temporary files: memory does not grow with the records.
// Sequences must come without a gap; what comes after one goes to the shelf: it is of
// one plan, or of a ledger that is refused for it.
type leafFile struct {
	leaves, firsts growing // firsts: of each sequence the number of its first record, u64
	last           uint64
	shelf          audit.Leaves // what comes after a gap
	gap            bool         // there was one
	err            error        // of the first read or write that failed
}

// growing is a file that only grows, and is read anywhere.
type growing struct {
	file *os.File
	size int64 // bytes, with those of the tail
	tail []byte
}

func newLeafFile(shelf *fileShelf) (*leafFile, error) {
	l := &leafFile{shelf: shelvedLeaves{shelf}}
	for _, g := range []*growing{&l.leaves, &l.firsts} {
		file, err := temporary()
		if err != nil {
			l.close()
			return nil, err
		}
		g.file = file
	}
	return l, nil
}

func (l *leafFile) close() {
	for _, g := range []*growing{&l.leaves, &l.firsts} {
		discard(g.file)
	}
}

func (g *growing) add(data []byte) error {
	g.tail = append(g.tail, data...)
	g.size += int64(len(data))
	if len(g.tail) < tailMax {
		return nil
	}
	_, err := g.file.WriteAt(g.tail, g.size-int64(len(g.tail)))
	g.tail = g.tail[:0]
	return err
}

func (g *growing) read(into []byte, at int64) error {
	if written := g.size - int64(len(g.tail)); at >= written {
		copy(into, g.tail[at-written:])
		return nil
	}
	_, err := g.file.ReadAt(into, at) // what was added at once is not split
	return err
}

// Put implements audit.Leaves.
func (l *leafFile) Put(sequence uint64, index uint32, leaf [ledger.LeafSize]byte, refused bool) {
	l.gap = l.gap || sequence != l.last && sequence != l.last+1
	if l.gap {
		l.shelf.Put(sequence, index, leaf, refused)
		return
	}
	var err error
	if sequence == l.last+1 {
		err = l.firsts.add(binary.BigEndian.AppendUint64(nil, uint64(l.leaves.size/leafLen)))
		l.last = sequence
	}
	l.failed(errors.Join(err, l.leaves.add(leafRow(leaf, refused))))
}

// Get implements audit.Leaves.
func (l *leafFile) Get(sequence uint64, index uint32) (leaf [ledger.LeafSize]byte, refused,
	known bool) {
	if sequence == 0 || sequence > l.last {
		if l.gap {
			return l.shelf.Get(sequence, index)
		}
		return leaf, false, false
	}
	first, end := l.first(sequence), uint64(l.leaves.size/leafLen)
	if sequence < l.last {
		end = l.first(sequence + 1)
	}
	if uint64(index) >= end-first {
		return leaf, false, false
	}
	var row [leafLen]byte
	l.failed(l.leaves.read(row[:], int64(first+uint64(index))*leafLen))
	leaf, refused = readLeaf(row[:])
	return leaf, refused, true
}

func (l *leafFile) first(sequence uint64) uint64 {
	var number [8]byte
	l.failed(l.firsts.read(number[:], int64(sequence-1)*8))
	return binary.BigEndian.Uint64(number[:])
}

func (l *leafFile) failed(err error) {
	if l.err == nil {
		l.err = err
	}
}
