package rows

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// fill sets every field of a message, so that one that is forgotten shows.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsList():
			list := m.Mutable(f).List()
			for n := range 3 {
				v := list.NewElement()
				if f.Kind() == protoreflect.MessageKind {
					if depth > 0 {
						fill(v.Message(), depth-1)
					}
				} else {
					v = scalar(f, n+1)
				}
				list.Append(v)
			}
		case f.Kind() == protoreflect.MessageKind:
			if depth > 0 {
				fill(m.Mutable(f).Message(), depth-1)
			}
		default:
			m.Set(f, scalar(f, i+1))
		}
	}
}

func scalar(f protoreflect.FieldDescriptor, n int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(rune('a' + n)))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(n)})
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n) << 20)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n) << 40)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-int64(n))
	default:
		panic("a kind of field that no row has yet: " + f.Kind().String())
	}
}

// TestACloneHasEveryField: a field that ClonePlan or CloneAction forgets would be
// lost in the scratch fold of Decide, and one that ClonePayload forgets at the next change.
func TestACloneHasEveryField(t *testing.T) {
	p, a := new(rowspb.PlanRow), new(rowspb.ActionRow)
	fill(p.ProtoReflect(), 3)
	fill(a.ProtoReflect(), 3)
	if c := ClonePlan(p); !proto.Equal(p, c) {
		t.Errorf("plan\n%v\nclone\n%v", p, c)
	}
	if c := CloneAction(a); !proto.Equal(a, c) {
		t.Errorf("action\n%v\nclone\n%v", a, c)
	}
	payload := new(pb.Payload)
	fill(payload.ProtoReflect(), 3)
	if c := ClonePayload(payload); !proto.Equal(payload, c) {
		t.Errorf("payload\n%v\nclone\n%v", payload, c)
	}
}

// TestACloneIsApart: what the fold changes in place is not shared.
func TestACloneIsApart(t *testing.T) {
	p, a := new(rowspb.PlanRow), new(rowspb.ActionRow)
	fill(p.ProtoReflect(), 3)
	fill(a.ProtoReflect(), 3)
	p2, a2 := proto.CloneOf(p), proto.CloneOf(a)
	c, d := ClonePlan(p), CloneAction(a)
	for _, list := range [][]uint32{c.Ready, c.Parked, c.Reported, c.Watchers} {
		list[0] = 99
	}
	c.Orphans[0].Name = "z"
	for _, l := range append(c.Leases, d.Leases...) {
		l.Fired, l.Moot, l.WakeNs, l.Keys, l.Node = false, false, 99, nil, nil
	}
	if !proto.Equal(p, p2) || !proto.Equal(a, a2) {
		t.Error("a change to the clone changed the original")
	}
}
