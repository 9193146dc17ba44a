package ledger

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// FormatTraceparent writes a trace context as W3C Trace Context, version 00, has it:
// version, trace, span and flags in lower-case hex.
func FormatTraceparent(traceID [16]byte, spanID [8]byte, flags byte) string {
	return fmt.Sprintf("00-%x-%x-%02x", traceID, spanID, flags)
}

// ParseTraceparent reads a W3C traceparent of any version from 00 to fe; ok is false
// for what is none, which is no error anywhere: a trace decides nothing.
func ParseTraceparent(text string) (traceID [16]byte, spanID [8]byte, flags byte, ok bool) {
	parts := strings.SplitN(text, "-", 5)
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 ||
		len(parts[3]) != 2 ||
		parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 || strings.ToLower(text) != text {
		return traceID, spanID, 0, false
	}
	var version, flag [1]byte
	for _, p := range [...]struct {
		into []byte
		text string
	}{{version[:], parts[0]}, {traceID[:], parts[1]}, {spanID[:], parts[2]}, {flag[:], parts[3]}} {
		if _, err := hex.Decode(p.into, []byte(p.text)); err != nil {
			return [16]byte{}, [8]byte{}, 0, false
		}
	}
	if traceID == [16]byte{} || spanID == [8]byte{} {
		return [16]byte{}, [8]byte{}, 0, false
	}
	return traceID, spanID, flag[0], true
}
