// Package ledger is the format of a ledger and the contract of its stores: records,
// commits, addresses, the Merkle tree over all records with its tiles and checkpoints,
// and bundles. What follows is all of it, so that a reader of it can be written in any language;
// what the records mean is for package executor, and for docs/rules.md.
//
// # Messages
//
// A ledger is a stream of messages. Of each counts its sequence (from 1, without gaps), the
// store's stamp in unix ns, its subject, its header Content-Type, and its data, at most 64 KiB
// (CommitSizeMax). Its subject says who has written it (Source):
//
//	saga.TENANT.agent.AGENT.PLAN     PLAN is "_" where the commit is of several plans
//	saga.TENANT.fact.SOURCE          saga.TENANT.verdict.SUPERVISOR
//	saga.TENANT.operator.OPERATOR    saga.TENANT.worker.WORKER
//	saga.TENANT.executor             saga.TENANT.executor.term
//
// Names are 1 to 64 of a-z, A-Z, 0-9, '-' and '_'. Who may write where is the server's to hold,
// and the only authority there is: nothing inside a message says who wrote it.
//
// # Commits
//
// A message is one commit of 1 to 1,024 records. Of a pair, a forward and its compensation, both
// are in one commit, and neither counts without the other. Without a Content-Type it is, in the
// encoding of protobuf,
//
//	08 V                   min_reader: the version of the reader that it needs, from 1
//	12 L record            for each record: its length in bytes, and a Record of record.proto
//
// with every varint V and L as short as it can be, and nothing else: the leaves do not cover these
// bytes, so that they must follow from what the leaves do cover. A Record itself may be encoded in
// any way that protobuf allows. With "application/json" it is protojson of the same message,
//
//	{"minReader": V, "records": [...]}
//
// and nothing after it; min_reader is another spelling of minReader. With a further field, or
// without records, it is no commit. Where a name is given twice, or in another case, it is a
// commit, and each of its records is refused.
//
// A commit of the executor halts the reader (Halted) where its min_reader is above
// ReaderVersion, or one of its records has no kind that is known but a field from 20 on. Of
// anyone else a min_reader above ReaderVersion makes a message that is no commit. Whatever
// cannot be read is refused; a message is never skipped, it has a leaf.
//
// # Leaves
//
// Each record is one leaf of the tree, in the order of sequence and index. Its leaf data is, with
// numbers in big endian,
//
//	18     "sagenbaum/leaf/v1\n"
//	u64    sequence of the message
//	u32    index of the record in its commit, from 0
//	u32    how many records the commit has
//	u64    stamp of the message, in unix ns
//	u32    min_reader of the commit; in JSON without one: 1
//	u32 …  length of the tenant, and its bytes; likewise of the subject, the Content-Type and the
//	       body
//
// The body is the encoded Record. Of a commit in JSON it is the whole message for record 0, and for
// each further record the SHA-256 of the whole message. A message that is no commit is one leaf:
// index, count and min_reader are 0, and its body is the message.
//
// # Tree and checkpoints
//
// The tree is that of RFC 6962 over these leaves: SHA-256 of a zero byte and the leaf data is a
// leaf's hash, of a one byte and the hashes of both children a node's; with no record it is
// SHA-256 of nothing. A checkpoint is a C2SP tlog-checkpoint, signed as a C2SP signed note by
// the key of the tenant, with the origin "sagenbaum/TENANT" and no further lines (Checkpoint
// says which key). Its size counts records, not messages. Tiles are those of C2SP tlog-tiles,
// but for entries/, where an entry is u32 length and leaf data.
//
// The address of a record is written SEQUENCE.INDEX-HASH, with the hash of its leaf in hex
// (FormatFullAddress).
//
// # Keys of effects
//
// The idempotency key under which a tool, or a worker, is called is in hex the first 16 bytes of
// SHA-256 over these, each after its length as u32: "sagenbaum/key/v1", tenant, plan, action, and
// "do" or "undo" (Key). An owner may ask for another one (RetryKey).
//
// # Bundles
//
// A bundle is one file with a ledger, or a part of it, that is checked without the
// system it came from (package bundle reads and writes it, package verify checks it).
// Numbers are big endian. It begins with
//
//	"sagenbaum/bundle/v1\n"    20 bytes
//
// with a higher number in a later format, and goes on with frames. A frame is
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
