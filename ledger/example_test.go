package ledger_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The hash of a record follows from its message alone, as the package says byte by byte.
func Example() {
	commit, err := ledger.EncodeCommit([]*pb.Record{{Plan: "p1", Kind: &pb.Record_PlanOpened{
		PlanOpened: &pb.PlanOpened{Label: "trip to Rome"}}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	m := ledger.Message{Sequence: 7, StampNs: 1_790_000_000_000_000_000,
		Subject: "saga.default.agent.tripper.p1", Data: commit}
	entries, err := ledger.Decode("default", m)
	if err != nil {
		fmt.Println(err)
		return
	}
	e := entries[0]
	fmt.Println(e.Source.Writer(), "opens", e.Record.Plan)

	leaf := append([]byte{0}, "sagenbaum/leaf/v1\n"...)
	leaf = binary.BigEndian.AppendUint64(leaf, 7)
	for _, n := range []uint32{0, 1} { // the first record of one
		leaf = binary.BigEndian.AppendUint32(leaf, n)
	}
	leaf = binary.BigEndian.AppendUint64(leaf, 1_790_000_000_000_000_000)
	leaf = binary.BigEndian.AppendUint32(leaf, 1) // min_reader
	body := commit[4:]                            // 08 01 12 and the record's length
	for _, field := range []string{"default", "saga.default.agent.tripper.p1", "", string(body)} {
		leaf = append(binary.BigEndian.AppendUint32(leaf, uint32(len(field))), field...)
	}
	fmt.Println(sha256.Sum256(leaf) == [32]byte(e.Address.Leaf))
	// Output:
	// agent tripper opens p1
	// true
}
