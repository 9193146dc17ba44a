package api

// KeyQuery asks, on KeySubject, for the key of a plan; the first question makes it.
type KeyQuery struct {
	Plan string `json:"plan"`
}

// KeyAnswer answers a KeyQuery. It never goes into a log.
type KeyAnswer struct {
	Key    []byte `json:"key,omitempty"`    // seal.KeySize bytes
	Erased string `json:"erased,omitempty"` // the key is destroyed, or about to be: when and why
}
