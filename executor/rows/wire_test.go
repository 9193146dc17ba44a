package rows

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestMessagesAreReadAsProtobufReadsThem: every message of records and rows, whole, with a field
// that is unknown, and cut off anywhere. proto/gen rewrites the generated readers.
func TestMessagesAreReadAsProtobufReadsThem(t *testing.T) {
	for _, file := range []protoreflect.FileDescriptor{
		pb.File_sagenbaum_v1_record_proto, rowspb.File_executor_rowspb_rows_proto,
	} {
		for i := range file.Messages().Len() {
			kind, err := protoregistry.GlobalTypes.FindMessageByName(file.Messages().Get(i).FullName())
			if err != nil {
				t.Fatal(err)
			}
			compareReaders(t, kind)
		}
	}
}

func compareReaders(t *testing.T, kind protoreflect.MessageType) {
	t.Helper()
	m := kind.New()
	fill(m, 1)
	data, err := proto.Marshal(m.Interface())
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, 0xfa, 0x7f, 0x03, 'n', 'e', 'w') // of a later version
	name := kind.Descriptor().FullName()
	for end := range len(data) + 1 {
		ours, theirs := kind.New().Interface(), kind.New().Interface()
		err := ours.(interface{ UnmarshalVT([]byte) error }).UnmarshalVT(data[:end:end])
		wrong := proto.Unmarshal(data[:end:end], theirs)
		if (err == nil) != (wrong == nil) {
			t.Errorf("%s, %d of %d bytes: %v, and protobuf says %v", name, end, len(data), err, wrong)
		}
		if err == nil && !proto.Equal(ours, theirs) {
			t.Errorf("%s, %d of %d bytes:\n%v\nand protobuf\n%v", name, end, len(data), ours, theirs)
		}
	}
	for _, bad := range [][]byte{
		{0x04}, {0x00}, {0x0c}, {0xfa, 0x7f}, {0xfa, 0x7f, 0x01},
		{0xfa, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		if err := kind.New().Interface().(interface{ UnmarshalVT([]byte) error }).UnmarshalVT(bad); err == nil {
			t.Errorf("%s: % x is read", name, bad)
		}
	}
}
