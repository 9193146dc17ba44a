package compile

const (
	programsMax = 1024 // compiled expressions that Lint remembers
	turnsMax    = 128  // of an agent task
)
