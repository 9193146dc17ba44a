// Package audit folds a ledger a second time and holds it to the rules.
//
// It says again what records mean, from the records alone, and shares nothing with
// package executor: no rows, no indexes, no counters. Everything is recomputed when it
// is asked for. Where the two folds differ, one of them is wrong. It is the core of the
// offline verifier, and simulations compare with it after every record.
//
// What the documents leave open, in the order in which it bites:
//
//   - A record that a holder wrote is a claim: it is effective where the plan allows it
//     at that place, and void otherwise. What anybody else wrote is refused where it
//     breaks a rule. A second copy of a record is repeated. None of the three changes
//     anything, but that logical time moves with the stamp of every record, and with
//     the epoch of every record of a holder of the present term or of a later one.
//   - A void record is no violation by itself: others may have been faster. It is one
//     when its message would have been effective nowhere between the holder's last
//     message and itself, and is no copy of an earlier message.
//   - A plan that was never opened is opened by its first forward, without a
//     declaration: that forward may be crossing by now. It stays open even if the
//     forward is refused.
//   - A plan whose opening was refused is opened by that record, and has failed at once: of
//     the declaration only label, owner and second approver are kept.
//   - A lease turns at the first record after which its condition is true while its
//     plan is armed, and its action not settled. It may fire from then on, whatever the
//     condition is by now. A condition that reads the clock turns where a fact or a
//     state that it reads changes, and may fire wherever it is true.
//   - A child that commits gives up the leases that it holds for itself; those of its
//     actions are held on.
//   - The first lease of a plan that has turned is the one that fires. One that reads no
//     clock takes the place of one that does; of those that turn at one record any may
//     be it. The others wait after it for the case that it is cut, up to 16 of them.
//   - A firing tells what its condition read where it turned. One on the clock was asked
//     where its holder decided, which is some place after the holder's last message.
//   - A turn that reads no clock keeps a commit from landing; one that does loses
//     against it.
//   - An unwind that joins an action late makes what came before it wait, but not what
//     has begun: its next attempt goes on.
//   - What is undone, skipped or resolved without halt lets go what it came after, once
//     nothing after it is held. What is quarantined does so where the plan says continue.
//   - An entry of a child plan is owed like an action. It is under way while its child
//     unwinds, and ends as its child does.
//   - An end names what was outstanding where its holder decided it: what
//     others say of the plan after the holder's last message is not in it.
//   - A plan whose action was ever answered by its owner ends resolved, a plan of which
//     nothing crossed ends failed, also when it was opened with a parent that is not.
//   - A completion counts also after a failure, and then is a duty if the action was
//     skipped. Nothing else is said twice of a forward.
//   - A fact has the depth of the unwind whose undo it names while that undo
//     is under way, and for an hour of logical time after its success.
//   - A plan is undone after its commit by a new plan with the same keys, whose actions
//     hear of outcomes that arrive for the old one.
package audit
