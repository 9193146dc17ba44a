package main

import (
	"fmt"
	"go/format"
	"regexp"
	"strings"
)

// The generator of vtprotobuf writes the reading of a varint out for each field: a megabyte of
// binary, and ten thousand lines. Here each is a call of a function that a generated file has once.
// What is read, and what is refused with which error, stays as it was.

const readers = `
// readVarint reads the varint at i, and where the next value begins.
func readVarint(b []byte, i int) (v uint64, next int, err error) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1, nil // most are this short
	}
	for shift := uint(0); ; shift += 7 {
		if shift >= 64 {
			return 0, 0, protohelpers.ErrIntOverflow
		}
		if i >= len(b) {
			return 0, 0, io.ErrUnexpectedEOF
		}
		c := b[i]
		i++
		v |= uint64(c&0x7F) << shift
		if c < 0x80 {
			return v, i, nil
		}
	}
}

// readTag reads the tag of a field of a message.
func readTag(b []byte, i int, message string) (field int32, wireType, next int, err error) {
	wire, next, err := readVarint(b, i)
	if err != nil {
		return 0, 0, 0, err
	}
	field, wireType = int32(wire>>3), int(wire&0x7)
	if wireType == 4 {
		return 0, 0, 0, fmt.Errorf("proto: %s: wiretype end group for non-group", message)
	}
	if field <= 0 {
		return 0, 0, 0, fmt.Errorf("proto: %s: illegal tag %d (wire type %d)", message, field, wire)
	}
	return field, wireType, next, nil
}

// readPart reads what has its length before it.
func readPart(b []byte, i int) (part []byte, next int, err error) {
	length, i, err := readVarint(b, i)
	if err != nil {
		return nil, 0, err
	}
	if int(length) < 0 || i+int(length) < 0 {
		return nil, 0, protohelpers.ErrInvalidLength
	}
	next = i + int(length)
	if next > len(b) {
		return nil, 0, io.ErrUnexpectedEOF
	}
	return b[i:next], next, nil
}

// skipField finds the end of a field that is unknown and begins at i.
func skipField(b []byte, i int) (next int, err error) {
	skipped, err := protohelpers.Skip(b[i:])
	if err != nil {
		return 0, err
	}
	if skipped < 0 || i+skipped < 0 {
		return 0, protohelpers.ErrInvalidLength
	}
	if i+skipped > len(b) {
		return 0, io.ErrUnexpectedEOF
	}
	return i + skipped, nil
}

func wrongWireType(wireType int, field string) error {
	return fmt.Errorf("proto: wrong wireType = %d for field %s", wireType, field)
}
`

// loop is a varint as the generator writes it. What it is read into is target.
func loop(target string) string {
	return `for shift := uint\(0\); ; shift \+= 7 \{
\s*if shift >= 64 \{
\s*return protohelpers.ErrIntOverflow
\s*\}
\s*if iNdEx >= l \{
\s*return io.ErrUnexpectedEOF
\s*\}
\s*b := dAtA\[iNdEx\]
\s*iNdEx\+\+
\s*` + target + ` \|= ([\w.]+)\(b&0x7F\) << shift
\s*if b < 0x80 \{
\s*break
\s*\}
\s*\}
`
}

// refused is a check as the generator writes it.
func refused(condition, problem string) string {
	return `\s*if ` + condition + ` \{
\s*return ` + problem + `
\s*\}
`
}

var shorter = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`var wire uint64
\s*` + loop("wire") + `\s*fieldNum := int32\(wire >> 3\)
\s*wireType := int\(wire & 0x7\)
` + refused("wireType == 4", `fmt.Errorf\("proto: (\w+): wiretype end group for non-group"\)`) +
		refused("fieldNum <= 0", `fmt.Errorf\("proto: \w+: illegal tag[^\n]*`)),
		`fieldNum, wireType, next, err := readTag(dAtA, iNdEx, "$2")
		if err != nil {
			return err
		}
		iNdEx = next
`},
	{regexp.MustCompile(`var (?:msglen|byteLen|packedLen|stringLen) (?:int|uint64)
\s*` + loop("(?:msglen|byteLen|packedLen|stringLen)") +
		`(?:\s*intStringLen := int\(stringLen\)
)?` + refused(`\w+ < 0`, "protohelpers.ErrInvalidLength") + `\s*postIndex := iNdEx \+ \w+
` + refused("postIndex < 0", "protohelpers.ErrInvalidLength") +
		refused("postIndex > l", "io.ErrUnexpectedEOF")),
		`part, postIndex, err := readPart(dAtA, iNdEx)
			if err != nil {
				return err
			}
`},
	{regexp.MustCompile(`(?:var v (?:int|uint32)|m\.\w+ = 0)
\s*` + loop(`(v|m\.\w+)`)),
		`value, next, err := readVarint(dAtA, iNdEx)
			if err != nil {
				return err
			}
			$1 := $2(value)
			iNdEx = next
`},
	{regexp.MustCompile(`iNdEx = preIndex
\s*skippy, err := protohelpers.Skip\(dAtA\[iNdEx:\]\)
` + refused("err != nil", "err") +
		refused(`\(skippy < 0\) \|\| \(iNdEx\+skippy\) < 0`, "protohelpers.ErrInvalidLength") +
		refused(`\(iNdEx \+ skippy\) > l`, "io.ErrUnexpectedEOF") +
		`\s*m.unknownFields = append\(m.unknownFields, dAtA\[iNdEx:iNdEx\+skippy\]...\)
\s*iNdEx \+= skippy
`),
		`if iNdEx, err = skipField(dAtA, preIndex); err != nil {
				return err
			}
			m.unknownFields = append(m.unknownFields, dAtA[preIndex:iNdEx]...)
`},
	{regexp.MustCompile(`fmt.Errorf\("proto: wrong wireType = %d for field (\w+)", wireType\)`),
		`wrongWireType(wireType, "$1")`},
	{regexp.MustCompile(`(m\.\w+) := `), `$1 = `},
	{regexp.MustCompile(`fieldNum, wireType, next(, err := readTag[^}]*\})
\s*iNdEx = next(
\s*switch fieldNum \{
\s*default:)`), `fieldNum, _, _$1$2`},
	{regexp.MustCompile(`dAtA\[iNdEx:postIndex\]`), `part`},
	{regexp.MustCompile(`for iNdEx < postIndex \{`),
		`for iNdEx = postIndex - len(part); iNdEx < postIndex; {`},
}

// shorten has the readers of one file of vtprotobuf call functions; it fails where a varint is
// still written out, as a new version of the generator may do it in other words.
func shorten(name, text string) (string, error) {
	if !strings.HasSuffix(name, "_vtproto.pb.go") {
		return text, nil
	}
	for _, s := range shorter {
		text = s.from.ReplaceAllString(text, s.to)
	}
	if n := strings.Count(text, "for shift := "); n > 0 {
		return "", fmt.Errorf("%s: %d varints are written out in words that shorten does not know",
			name, n)
	}
	out, err := format.Source([]byte(text + readers))
	return string(out), err
}
