package triggers

// Limits on an expression, so that no text can cost a turn: what exceeds the
// first five is refused at registration; what exceeds costMax, or one of the
// four after keyMax, or makes a text of more than outputMax, stops and waits.
// textMax, keyMax and outputMax are limits of the record format as well: a test
// compares them with package ledger, which this one does not import.
const (
	textMax  = 4 << 10      // bytes, checked before the parser sees them
	parseMax = 48           // nesting that the parser follows
	depthMax = 32           // nesting of the parsed expression
	nodesMax = 1000         // nodes after the macros are expanded
	regexMax = 250          // instructions of a compiled regular expression
	costMax  = 10_000       // steps of one evaluation, as cel-go counts them
	keyMax   = 256          // bytes of a fact key
	readMax  = 512          // facts that one evaluation reads, or asks the times of
	bytesMax = 1 << 20      // bytes of their values
	countMax = 10_000       // occurrences that at_least() and count() look at
	timesMax = 2 * countMax // occurrences that one evaluation looks at
	// instructions times bytes of text that regular expressions of one evaluation run over
	scanMax   = 1 << 19
	outputMax = 64 << 10 // bytes of the value of a binding
	latestMax = 256      // occurrences that latest lists
	jsonMax   = 256      // nesting of a JSON value that an expression reads
)
