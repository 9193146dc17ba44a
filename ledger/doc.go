// Package ledger is the format of a ledger and the contract of who stores it: records,
// commits, addresses, the Merkle tree over all records with its tiles and checkpoints,
// and bundles.
//
// # Bundles
//
// A bundle is one file with a ledger, or a part of it, that is checked without the
// system it came from (package bundle reads and writes it, package verify checks it).
// Numbers are big endian. It begins with
//
//	"sagenbaum/bundle/v1\n"    20 bytes
//
// and goes on with frames. A frame is
//
//	u8     type
//	u32    length of the payload, at most 2 MiB + 4096
//	       payload
//	8      the first bytes of SHA-256 over type, length and payload
//
// The sum finds damage, not forgery: that is for the tree. A file may end after any
// frame and be continued there; without its end it is cut off. Frames are, by type:
//
//	'H'    the first one, and no other: JSON without white space, in this order of fields:
//	       {"tenant":T,"holds":"whole"} or {"tenant":T,"holds":"plan","plan":P}
//	       or {"tenant":T,"holds":"since","since":SEQUENCE}
//	'R'    records: u64 index of the first, u32 how many, u32 bytes unpacked, at most
//	       2 MiB; then, packed by zstd, so many entries as AppendEntry writes them: u32
//	       length and the leaf data of Leaf
//	'W'    records that are withheld: u64 index of the first, u64 how many; then the
//	       fewest perfect subtrees that cover them, from the left, each u8 level and 32
//	       bytes of hash, over 2^level leaves; a subtree of level l begins at a multiple
//	       of 2^l
//	'C'    a signed checkpoint of so many records as came before: the text of a C2SP
//	       signed note (Checkpoint)
//	'E'    the end: u64 records, 32 bytes root of their tree; nothing follows
//
// Records and withheld ones follow each other without a gap from index 0 on. Who reads
// hashes each leaf data with LeafHash, takes the withheld subtrees as they are, and so
// computes the root of every prefix that a frame ends: this is the proof of inclusion of
// all shown records at once, and of the consistency of every two checkpoints on the way.
package ledger
