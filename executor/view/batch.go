package view

import "encoding/json"

// A list is answered in batches. listMax bounds one in entries, batchBytesMax in bytes of
// JSON: an answer must fit into one NATS message (1 MiB by default).
const (
	listMax       = 1000
	listDefault   = 100
	batchBytesMax = 512 << 10
)

// limitOf is how many entries a question asks for.
func limitOf(asked int) int {
	if asked <= 0 || asked > listMax {
		return listDefault
	}
	return asked
}

// batch collects the entries of one answer until it is full.
type batch[T any] struct {
	limit, size int
	list        []T
	last        string // cursor of the last entry that was added or passed over
	next        string // where the next batch goes on; empty: there is no more
}

func newBatch[T any](limit int) *batch[T] { return &batch[T]{limit: limitOf(limit)} }

// add takes entries that belong together, which end at a cursor. It reports false where
// the batch is full without them. An empty batch takes what it is given.
func (b *batch[T]) add(cursor string, entries ...T) bool {
	size := b.size
	for _, v := range entries {
		size += sizeOf(v)
	}
	if len(b.list) > 0 && (len(b.list)+len(entries) > b.limit || size > batchBytesMax) {
		b.end()
		return false
	}
	b.list, b.size, b.last = append(b.list, entries...), size, cursor
	return true
}

// pass notes a cursor whose entry was not selected.
func (b *batch[T]) pass(cursor string) { b.last = cursor }

// end has the next batch go on after the last cursor.
func (b *batch[T]) end() { b.next = b.last }

// sizeOf is how many bytes of JSON a value takes.
func sizeOf(v any) int {
	text, err := json.Marshal(v)
	if err != nil {
		panic("view: cannot encode " + err.Error())
	}
	return len(text)
}
