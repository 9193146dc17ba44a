package api

// The kinds of users that exchange blobs with a host, as BlobSubject has them.
const (
	BlobAgent    = "agent"    // stores and reads what belongs to its own plans
	BlobWorker   = "worker"   // stores and reads what belongs to any plan of its tenant
	BlobOperator = "operator" // reads
)

// The verbs of blobs.
const (
	VerbBlobPut  = "put"  // stores one chunk
	VerbBlobEnd  = "end"  // makes a blob of chunks that are stored
	VerbBlobGet  = "get"  // says what a blob is made of
	VerbBlobRead = "read" // returns one chunk
)

// BlobSubject is where a user exchanges blobs with the host that holds its tenant: values that are
// too large for a record. The subject carries the authority: who someone is, and what it may do.
func BlobSubject(tenant, kind, name, verb string) string {
	return "blob." + tenant + "." + kind + "." + name + "." + verb
}

// BlobHeader is the header of a message that has the bytes of a chunk as its body: of a request to
// store one its value is the plan, of an answer to a request for one its number. An answer without
// it is JSON.
const BlobHeader = "Sagenbaum-Blob"

// CodeBlob is the code of an undo that needs a blob which is not there, or is damaged. No contract
// is asked whether that means undone.
const CodeBlob = "blob_missing"

// BlobChunkAnswer answers a request to store a chunk, whose body is the chunk.
type BlobChunkAnswer struct {
	Digest string `json:"digest"` // of the sealed chunk
}

// BlobEndQuery makes a blob of chunks: all but the last have the full size of one.
type BlobEndQuery struct {
	Plan   string   `json:"plan"`
	Bytes  int64    `json:"bytes"`
	SHA256 string   `json:"sha256"` // of all bytes, in hex: the host compares it with what is stored
	Type   string   `json:"type,omitempty"`
	Chunks []string `json:"chunks"` // digests of the sealed chunks, in order
}

// BlobEndAnswer is the reference to the blob, which may take the place of its value.
type BlobEndAnswer struct {
	Text  string `json:"sagenbaum/blob/v1,omitempty"` // plan and digest
	Bytes int64  `json:"bytes"`
	Type  string `json:"type,omitempty"`
}

// BlobQuery asks for a blob: its plan and digest, as its reference has them. Chunk is the number of
// the one that is read, from 0.
type BlobQuery struct {
	Plan   string `json:"plan"`
	Digest string `json:"digest"`
	Chunk  int    `json:"chunk,omitempty"`
}

// BlobAnswer says what a blob is made of.
type BlobAnswer struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // of all bytes, in hex
	Chunks int    `json:"chunks"`
}

// BlobGone is the field of a Problem that says that a blob is not there, and will not be.
const BlobGone = "blob"

// CodeBlobPlan is the field of a Problem that says that the ledger does not have the plan yet that
// something is to be stored for. A worker that is asked for a before-image answers with it as the
// code: the agent stores the opening of its plan, and asks again.
const CodeBlobPlan = "plan_not_stored"

// BlobPut stores a chunk, which is the body of the request.
func BlobPut(kind, name string) Verb[Nothing, BlobChunkAnswer] {
	return blobVerb[Nothing, BlobChunkAnswer](kind, name, VerbBlobPut)
}

// BlobEnd makes a blob of chunks.
func BlobEnd(kind, name string) Verb[BlobEndQuery, BlobEndAnswer] {
	return blobVerb[BlobEndQuery, BlobEndAnswer](kind, name, VerbBlobEnd)
}

// BlobGet says what a blob is made of.
func BlobGet(kind, name string) Verb[BlobQuery, BlobAnswer] {
	return blobVerb[BlobQuery, BlobAnswer](kind, name, VerbBlobGet)
}

// BlobMark is the first byte of an answer with a chunk, which follows: an agent chooses the bytes
// of its values, and where their answer goes. With it they are no JSON, and so no command.
const BlobMark = 0

// BlobRead returns a chunk, in the body of the answer after BlobMark.
func BlobRead(kind, name string) Verb[BlobQuery, Nothing] {
	return blobVerb[BlobQuery, Nothing](kind, name, VerbBlobRead)
}

func blobVerb[Q, A any](kind, name, verb string) Verb[Q, A] {
	return Verb[Q, A]{Call{"blob." + verb,
		func(tenant, _ string) string { return BlobSubject(tenant, kind, name, verb) }}}
}
