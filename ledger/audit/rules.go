package audit

// Rule is one of the rules that a ledger is held to.
type Rule struct {
	ID       string
	Sentence string // for a report
	Here     string // what this package says of it; empty: nothing, see Elsewhere
	// Elsewhere says who else holds a ledger to it.
	Elsewhere string
}

// Rules lists all rules, in the order of their numbers.
func Rules() []Rule {
	return []Rule{
		{"I1", "Positions are 1 to n without a gap.", "each message stands behind the one before it", "the host's guard G1 compares with the stream"},
		{"I2", "Every checkpoint has the root of the records before it, and a valid signature.", "no checkpoint covers more than there is, and each key is ended by the one in force", "the verifier of checkpoints, which has leaves and keys"},
		{"I3", "A commit is one message: whole or absent.", "a message that is no commit is refused as a whole", ""},
		{"I4", "Each kind of record stands only where its writer may write.", "others are refused; a holder that writes one is reported", "the permissions of the server"},
		{"I5", "An id counts once: a copy changes nothing, and another record under it is refused.", "recomputed; both are told by Entries", ""},
		{"I6", "Every reference names an earlier record of the same ledger, by place and leaf.", "about and cause of every record of a holder, also void ones; those of others where the fold reads them", ""},
		{"I7", "The state is a function of the records only.", "this fold has no other input", "memory rebuild compares rows byte for byte"},
		{"I8", "Logical time is the maximum of the stamps and epochs recorded so far.", "recomputed for each record", ""},
		{"I9", "The same state and input give the same decisions.", "", "the tests of the executor, which decide twice"},
		{"I10", "Working memory is what the records say.", "evictions and returns are held to the facts asserted", "memory rebuild compares rows byte for byte"},
		{"I11", "A lease that fired was true, by the condition that was registered.", "the condition is asked again over facts recomputed from the records, and so is what the firing says that it read", ""},
		{"I12", "A lease fires for the first record after which it was true while armed.", "the cause of each firing of a condition that reads no clock", ""},
		{"I13", "What is true while armed fires.", "at the end; and no commit lands behind a turn", ""},
		{"I14", "A lease fires once, until its plan is open again.", "counted by lease", ""},
		{"I15", "A plan that has ended does nothing more.", "records about it are void or refused; commits and unwinds are counted from open plans only", ""},
		{"I16", "Nothing that reads the clock fires early.", "asked again at logical time", "the host's clock guard holds the clock against another one"},
		{"I17", "Every forward has its compensation in the same commit.", "half of a pair is refused, and its owner's if the plan unwinds; each dispatch is held to what was registered", ""},
		{"I18", "No outcome of an undo without its dispatch.", "attempt by attempt, with the question behind what claims to be probed or verified", ""},
		{"I19", "One undo and one key for each address, whatever attempt and term.", "keys are derived again from tenant, plan and action", ""},
		{"I20", "Only what crossed the boundary, or may have, is undone; doubt is settled as the contract says.", "recomputed from outcomes and answers", ""},
		{"I21", "An undo begins when all that came after it has ended.", "the order is walked again for each dispatch, skip and quarantine", ""},
		{"I22", "A plan ends compensated when each crossed action has exactly one success.", "recounted at each end", ""},
		{"I23", "What cannot be undone is its owner's, and the end names exactly what is outstanding.", "recounted at each end, name by name", ""},
		{"I24", "What is held is what was registered and neither retired nor settled.", "recounted; Held", ""},
		{"I25", "Every firing has the depth of what it read, and none is deeper than its limit.", "depth and chain are counted again; the limit is the largest that a holder may have", ""},
		{"I26", "Terms never decrease, and a holder of an older one decides nothing.", "each record of a holder", "the fence of the append"},
		{"I27", "Nothing crosses tenants.", "subjects, leaves and keys are all of this tenant", ""},
		{"I28", "Nothing that a decision reads can be shredded.", "this fold reads control fields only, and of payloads what bindings move into arguments, sealed values as they were stored", ""},
		{"I29", "A plan that ended compensated or failed has no effect standing, as long as providers keep what their contracts say.", "what a probe found before its forward could no longer land skips nothing, and no blind undo is sent before that unless the provider refuses what comes after it", "the simulator, which knows what stands"},
		{"I30", "A call takes what its registered bindings make of what was recorded.", "the bindings of each undo and each question are evaluated again over input, output, before-image, plan and meta", ""},
		{"I31", "A plan takes the records of one process of its agent at a time. An act that another one claims, or that any refused record claims, keeps its plan from ending committed, compensated or failed before somebody has said what became of it.", "the writer of every record; counted at each commit and each end", "the simulator, which knows what stands"},
		{"I36", "A commit retires nothing in doubt, unless its owner has answered for it or its plan accepts that.", "what is known of each action is counted again at each retirement, and what is retired in doubt is named", ""},
		{"I37", "No undo and no question is sent with null in place of what could not be kept.", "the arguments of each call about an action whose output is incomplete are built again", ""},
		{"L1", "Every unwind ends.", "at the end", ""},
		{"L2", "Every deadline that has passed has fired.", "at the end", ""},
	}
}
