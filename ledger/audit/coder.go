package audit

import (
	"encoding/binary"
	"maps"
	"slices"
)

// coder writes values for a shelf, or reads them again: each type says its fields once,
// for both ways.
type coder struct {
	data  []byte
	reads bool
	bad   bool // what is read was never written
}

func (c *coder) take(n uint64) []byte {
	if c.bad = c.bad || n > uint64(len(c.data)); c.bad {
		return nil
	}
	out := c.data[:n:n]
	c.data = c.data[n:]
	return out
}

func (c *coder) uvarint(v uint64) uint64 {
	if !c.reads {
		c.data = binary.AppendUvarint(c.data, v)
		return v
	}
	v, n := binary.Uvarint(c.data)
	if n <= 0 {
		c.bad = true
		return 0
	}
	c.data = c.data[n:]
	return v
}

func number[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64](c *coder, v *T) {
	*v = T(c.uvarint(uint64(*v)))
}

func (c *coder) flag(v *bool) {
	n := uint64(0)
	if *v {
		n = 1
	}
	*v = c.uvarint(n) == 1
}

func (c *coder) text(v *string) {
	n := c.uvarint(uint64(len(*v)))
	if !c.reads {
		c.data = append(c.data, *v...)
		return
	}
	*v = string(c.take(n))
}

func (c *coder) bytes(v *[]byte) {
	n := c.uvarint(uint64(len(*v)))
	if !c.reads {
		c.data = append(c.data, *v...)
		return
	}
	if *v = nil; n > 0 {
		*v = slices.Clone(c.take(n))
	}
}

// pointer codes what may be nil.
func pointer[T any](c *coder, v **T, one func(*coder, *T)) {
	there := *v != nil
	if c.flag(&there); !there {
		*v = nil
		return
	}
	if c.reads {
		*v = new(T)
	}
	one(c, *v)
}

func sequence[T any](c *coder, v *[]T, one func(*coder, *T)) {
	n := c.uvarint(uint64(len(*v)))
	if c.reads {
		*v = nil
	}
	for i := uint64(0); i < n && !c.bad; i++ {
		if c.reads {
			*v = append(*v, *new(T))
		}
		one(c, &(*v)[i])
	}
}

// table codes a map by names, in their order.
func table[T any](c *coder, v *map[string]T, one func(*coder, *T)) {
	names := slices.Sorted(maps.Keys(*v))
	sequence(c, &names, func(c *coder, name *string) {
		c.text(name)
		value := (*v)[*name]
		if one(c, &value); c.reads {
			if *v == nil {
				*v = map[string]T{}
			}
			(*v)[*name] = value
		}
	})
}

// record codes a part of a record, which may be nil, with all that this version does
// not know.
func record[T any, P interface {
	*T
	MarshalVT() ([]byte, error)
	UnmarshalVT([]byte) error
}](c *coder, v **T) {
	pointer(c, v, func(c *coder, m *T) {
		var data []byte
		if !c.reads {
			var err error
			if data, err = P(m).MarshalVT(); err != nil {
				panic("audit: cannot encode a part of a record: " + err.Error())
			}
		}
		if c.bytes(&data); c.reads && P(m).UnmarshalVT(data) != nil {
			c.bad = true
		}
	})
}
