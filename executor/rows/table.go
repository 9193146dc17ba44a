package rows

import (
	"errors"
	"fmt"
	"reflect"
)

// Message is a row as protobuf generates it for R.
type Message[R any] interface {
	*R
	encoder
	decoder
}

type encoder interface {
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
}

type decoder interface{ UnmarshalVT([]byte) error }

// ErrMissing is in the *StoreError for a row that must be there and is not.
var ErrMissing = errors.New("a row is missing")

// Encode returns the bytes of a row.
func Encode(row encoder) []byte {
	buf := make([]byte, row.SizeVT())
	if _, err := row.MarshalToSizedBufferVT(buf); err != nil {
		panic("rows: cannot encode a row: " + err.Error())
	}
	return buf
}

// Decode reads a row that was got or scanned, as op says. It panics with a *StoreError.
func Decode(op string, v []byte, row decoder) {
	if err := row.UnmarshalVT(v); err != nil {
		panic(&StoreError{op, err})
	}
}

// Declaration describes one table: the first byte of its keys, what follows that byte,
// and the type of its values; an empty Value: none.
type Declaration struct {
	Prefix byte
	Keys   string
	Value  string
}

var declared []Declaration

// Declared lists all tables, in the order in which they are declared. Tables of the same
// prefix keep their keys apart.
func Declared() []Declaration { return declared }

// Index is a table whose rows are their keys alone, or keys with a value that is not a
// message.
type Index[K any] struct {
	prefix byte
	layout func(key []byte, prefix byte, k K) []byte // appends a key
}

func index[K any](prefix byte, keys, value string, layout func([]byte, byte, K) []byte) Index[K] {
	declared = append(declared, Declaration{prefix, keys, value})
	return Index[K]{prefix, layout}
}

// Prefix is what all keys of the table begin with.
func (x *Index[K]) Prefix() []byte { return []byte{x.prefix} }

// Key returns the key of a row.
func (x *Index[K]) Key(k K) []byte { return x.layout(make([]byte, 0, keySize), x.prefix, k) }

// keySize is enough for most keys.
const keySize = 64

// at is Key in what tx has for the key of one call.
func (x *Index[K]) at(tx *Tx, k K) []byte {
	tx.key = x.layout(tx.key[:0], x.prefix, k)
	return tx.key
}

// Add adds a row without a value.
func (x *Index[K]) Add(tx *Tx, k K) { tx.Set(x.at(tx, k), nil) }

// Put sets the value of a row, which must not be changed from then on.
func (x *Index[K]) Put(tx *Tx, k K, value []byte) { tx.Set(x.at(tx, k), value) }

// Get returns the value of a row, and whether there is one.
func (x *Index[K]) Get(tx *Tx, k K) ([]byte, bool) { return tx.Get(x.at(tx, k)) }

// Delete removes a row, if it is there.
func (x *Index[K]) Delete(tx *Tx, k K) { tx.Delete(x.at(tx, k)) }

// Table is a table whose values are messages of type R.
type Table[K, R any, M Message[R]] struct{ Index[K] }

func table[K, R any, M Message[R]](
	prefix byte, keys string, layout func([]byte, byte, K) []byte,
) Table[K, R, M] {
	value := reflect.TypeFor[R]().Name()
	return Table[K, R, M]{index(prefix, keys, value, layout)}
}

// Find reads a row; nil: there is none.
func (t *Table[K, R, M]) Find(tx *Tx, k K) *R { return t.FindKey(tx, t.at(tx, k)) }

// FindKey is Find by a key of the table, for a caller that sets the row next.
func (t *Table[K, R, M]) FindKey(tx *Tx, key []byte) *R {
	v, ok := tx.Get(key)
	if !ok {
		return nil
	}
	return t.Decode("get", v)
}

// Load reads a row that must be there, past what a fork has written, and its size in
// bytes.
func (t *Table[K, R, M]) Load(tx *Tx, k K) (row *R, bytes int) {
	return t.LoadKey(tx, t.at(tx, k))
}

// LoadKey is Load by a key of the table.
func (t *Table[K, R, M]) LoadKey(tx *Tx, key []byte) (row *R, bytes int) {
	v, ok := tx.Stored(key)
	if !ok {
		panic(&StoreError{"get", fmt.Errorf("%w: %q", ErrMissing, key)})
	}
	return t.Decode("get", v), len(v)
}

// Must is Find of a row that must be there.
func (t *Table[K, R, M]) Must(tx *Tx, k K) *R {
	row := t.Find(tx, k)
	if row == nil {
		panic(&StoreError{"get", fmt.Errorf("%w: %q", ErrMissing, t.Key(k))})
	}
	return row
}

// Decode reads a value of the table that was got or scanned, as op says.
func (t *Table[K, R, M]) Decode(op string, v []byte) *R {
	row := new(R)
	Decode(op, v, M(row))
	return row
}

// Set writes a row and returns its size in bytes.
func (t *Table[K, R, M]) Set(tx *Tx, k K, row *R) (bytes int) {
	return t.SetKey(tx, t.at(tx, k), row)
}

// SetKey is Set by a key of the table.
func (t *Table[K, R, M]) SetKey(tx *Tx, key []byte, row *R) (bytes int) {
	v := Encode(M(row))
	tx.Set(key, v)
	return len(v)
}
