package api

// ErrorAnswer is what every answer can be read as first.
type ErrorAnswer struct {
	Error string `json:"error,omitempty"`
	Field string `json:"field,omitempty"` // of the request that is wrong, as in "request.plan"
	Want  string `json:"want,omitempty"`  // what would be right there
}
