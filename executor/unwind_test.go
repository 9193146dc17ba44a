package executor_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// schedules are one line each: what happens, and what becomes of plan p. In
// brackets is what workers undid, in that order. See schedule for the words.
var schedules = []scheduled{
	// How far an unwind reaches.
	{"known failure starts before the failed action (S12)", "open a a+ b b+ c c- fail turn",
		"compensated: a=compensated b=compensated c=skipped [b a]"},
	{"in doubt includes the failing action (S13)", "open a a+ b b+ c c? fail turn",
		"compensated: a=compensated b=compensated c=compensated [c b a]"},
	{"no outcome is in doubt (S13, S18)", "open a a+ b b+ c fail turn",
		"compensated: a=compensated b=compensated c=compensated [c b a]"},
	{"doubt that became failure is not undone", "open a a+ b b? b- fail turn", "compensated: a=compensated b=skipped [a]"},
	{"step five fails (S60)", "open a a+ b b+ c c+ d d+ e e- fail turn",
		"compensated: a=compensated b=compensated c=compensated d=compensated e=skipped [d c b a]"},
	{"effectless is skipped (S14)", "open a a+ b:eff b+ c c+ fail turn",
		"compensated: a=compensated b=skipped c=compensated [c a]"},
	{"effectless without outcome is skipped", "open a a+ b:eff fail turn", "compensated: a=compensated b=skipped [a]"},
	{"nothing crossed: failed, never unwinding (S15)", "open a a- b b- fail turn", "failed: a=skipped b=skipped []"},
	{"an empty plan fails (S15)", "open fail turn", "failed:  []"},
	{"all skipped is compensated (S16)", "open a:eff a+ b:eff b+ fail turn", "compensated: a=skipped b=skipped []"},
	{"a tool error alone undoes nothing", "open a a+ b b- turn @1h", "open: a=held b=held []"},
	{"success retires nothing (S59)", "open a a+ b b+ turn @1h", "open: a=held b=held []"},
	{"commit retires all at once (S62)", "open a a+ b b- c c+ commit turn", "committed: a=retired b=retired c=retired []"},

	// What cannot be undone is its owner's.
	{"irreversible and completed (S86)", "open a a+ b:irr b+ c c+ fail turn",
		"quarantined: a=owed b=quarantined c=compensated [c]"},
	{"irreversible and in doubt (S87)", "open a a+ b:irr b? fail turn", "quarantined: a=owed b=quarantined []"},
	{"irreversible and failed", "open a a+ b:irr b- fail turn", "compensated: a=compensated b=skipped [a]"},
	{"the contract asks its owner when in doubt", "open a a+ b:askme b? fail turn",
		"quarantined: a=owed b=quarantined []"},
	{"the contract asks its owner, but it completed", "open a a+ b:askme b+ fail turn",
		"compensated: a=compensated b=compensated [b a]"},

	// Order, branches, concurrency.
	{"stop quarantines at once; what came before halts (S25, S41)", "open a a+ b b+ c c+ b=stop fail turn",
		"quarantined: a=owed b=quarantined c=compensated [c]"},
	{"independent branches finish (S47)", "open a a+ b<a b+ c<a c+ d<c d+ b=stop fail turn",
		"quarantined: a=owed b=quarantined c=compensated d=compensated [d c]"},
	{"two roots", "open a< a+ b< b+ c<b c+ a=stop fail turn",
		"quarantined: a=quarantined b=compensated c=compensated [c b]"},
	{"a diamond", "open a a+ b<a b+ c<a c+ d<b,c d+ fail turn",
		"compensated: a=compensated b=compensated c=compensated d=compensated [d c b a]"},
	{"one at a time", "open:1 a< a+ b< b+ c< c+ a=stop fail turn",
		"quarantined: a=quarantined b=compensated c=compensated [c b]"},
	{"nothing moves on its own afterwards (S46, S52)", "open a a+ b b+ b=stop fail turn b=done turn @1h @1000h",
		"quarantined: a=owed b=quarantined []"},

	// Retries.
	{"retry, then done", "open a a+ a=fail,done fail turn @1s", "compensated: a=compensated [a]"},
	{"attempts spent", "open a a+ b b+ b=fail fail turn @1s @1h", "quarantined: a=owed b=quarantined []"},
	{"waiting for the next attempt", "open a a+ b b+ b=fail fail turn @999ms", "unwinding: a=owed b=waiting []"},
	{"a timeout counts as failed (S25)", "open a a+ a=lost fail turn @1s", "quarantined: a=quarantined []"},
	{"an earlier attempt turns out done", "open a a+ a=lost fail turn tell:a#1=done turn",
		"compensated: a=compensated []"},
	{"the first attempt turns out done during the second", "open a a+ a=lost,late fail turn @1s tell:a#1=done turn",
		"compensated: a=compensated []"},
	{"a failed forward is not tried again", "open a a+ b b? b=fail fail turn b- turn",
		"compensated: a=compensated b=skipped [a]"},
	{"a forward fails while its blind undo is out", "open a a+ b b=late fail turn b- tell:b#1=fail turn",
		"compensated: a=compensated b=skipped [a]"},

	// The owner's word.
	{"resolve goes on (S106)", "open a a+ b b+ b=stop fail turn resolve:b turn", "resolved: a=compensated b=resolved [a]"},
	{"resolve and halt", "open a a+ b b+ b=stop fail turn halt:b turn", "resolved: a=owed b=resolved []"},
	{"what halt keeps of a part stays at the plan's end", "open b b+ a a+ a=stop undo:!a turn halt:a turn c c+ undo turn",
		"resolved: b=owed a=resolved c=compensated [c]"},
	{"the second of two operators is refused", "open a a+ b b+ b=stop fail turn resolve:b !resolve:b !halt:b turn " +
		"!resolve:b", "resolved: a=compensated b=resolved [a]"},
	{"only what is owed can be resolved", "open a a+ b b+ !resolve:a b=stop fail !resolve:b turn !resolve:x",
		"quarantined: a=owed b=quarantined []"},
	{"retry asked for and done", "open a a+ b b+ b=stop fail turn b=done retry:b turn",
		"compensated: a=compensated b=compensated [b a]"},
	{"retry gives all attempts again", "open a a+ a=fail fail turn @1s a=fail,done retry:a turn @3s",
		"compensated: a=compensated [a]"},
	{"what has no inverse is not retried", "open a:irr a+ fail turn !retry:a", "quarantined: a=quarantined []"},
	{"one of two is resolved", "open a< a+ b< b+ a=stop b=stop fail turn resolve:a turn",
		"quarantined: a=resolved b=quarantined []"},
	{"each by another word", "open a< a+ b< b+ a=stop b=stop fail turn resolve:a turn b=done retry:b turn",
		"resolved: a=resolved b=compensated [b]"},
	{"halt keeps what came before, retry the rest", "open a a+ b b+ c<a c+ b=stop c=stop fail turn halt:b turn c=done " +
		"retry:c turn", "resolved: a=owed b=resolved c=compensated [c]"},
	{"a retry waits for what joined since", "open a a+ a=stop fail turn b b+ b=late turn a=done retry:a turn",
		"unwinding: a=owed b=dispatched []"},

	// A forward without its registration.
	{"an orphan is its owner's", "open a a+ !lone:x fail turn", "quarantined: a=compensated [a]"},
	{"an orphan and nothing else", "open !lone:x fail turn", "quarantined:  []"},
	{"an orphan is resolved", "open a a+ !lone:x fail turn resolve:x turn !resolve:x", "resolved: a=compensated [a]"},
	{"an orphan stops a commit", "open a a+ !lone:x !commit turn resolve:x commit turn", "committed: a=retired []"},
	{"an orphan that is registered later is none", "open !lone:x x x+ fail turn", "compensated: x=compensated [x]"},
	{"an orphan during the unwind", "open a a+ a=late fail turn !lone:x tell:a#1=done turn",
		"quarantined: a=compensated []"},
	{"an orphan after the end", "open a a+ fail turn !lone:x turn", "quarantined: a=compensated [a]"},
	{"an orphan behind a failed plan", "open a a- fail turn !lone:x turn", "quarantined: a=skipped []"},
	{"a copy of a resolved orphan", "open a a+ !lone:x fail turn resolve:x turn !lone:x turn",
		"resolved: a=compensated [a]"},
	{"a new orphan behind a resolved plan", "open a a+ !lone:x fail turn resolve:x turn !lone:y turn",
		"quarantined: a=compensated [a]"},
	{"a forward after an unknown action", "open a a+ !b<nope fail turn", "quarantined: a=compensated [a]"},

	// Ends and races in the log.
	{"cancelled by its agent", "open a a+ cancel turn", "compensated: a=compensated [a]"},
	{"cancelled by an operator", "open a a+ stop turn", "compensated: a=compensated [a]"},
	{"fail after commit", "open a a+ commit !fail !cancel !stop turn", "committed: a=retired []"},
	{"commit after fail", "open a a+ fail !commit turn !commit", "compensated: a=compensated [a]"},
	{"commit after cancel", "open a a+ stop !commit turn", "compensated: a=compensated [a]"},
	{"first of fail and cancel", "open a a+ fail !cancel turn", "compensated: a=compensated [a]"},
	{"a pair after the commit", "open a a+ commit !b turn", "committed: a=retired []"},

	// Doubt (S97, S98, S104, S109).
	{"the probe finds it: it is undone", "open a a+ b:probe b? fail turn",
		"compensated: a=compensated b=compensated [b a]"},
	{"the probe finds nothing: it is skipped", "open a a+ b:probe b? b.probe=absent fail turn",
		"compensated: a=compensated b=skipped [a]"},
	{"only doubt, and nothing there: failed", "open b:probe b? b.probe=absent fail turn", "failed: b=skipped []"},
	{"the probe finds two: each is undone once", "open a a+ b:probe b? b.probe=duplicate fail turn",
		"compensated: a=compensated b=compensated b~1=compensated [b~1 b a]"},
	{"more effects than are kept: none is taken for all of them, its owner decides",
		"open b:probe b? b.probe=crowded fail turn @1s", "quarantined: b=quarantined []"},
	{"a name that is not kept whole is its owner's", "open b:probe b? b.probe=long fail turn @1s",
		"quarantined: b=quarantined []"},
	{"two effects that are said to be one are its owner's", "open b:probe b? b.probe=both fail turn @1s",
		"quarantined: b=quarantined []"},
	{"a duplicate that no argument names is its owner's", "open a:blind a? a=lost,done a.probe=duplicate fail turn @1s",
		"quarantined: a=compensated a~1=quarantined [a]"},
	{"the probe does not know: its owner", "open a a+ b:probe b? b.probe=inconclusive fail turn @1s",
		"quarantined: a=owed b=quarantined []"},
	{"the probe does not know at first", "open a a+ b:probe b? b.probe=inconclusive,present fail turn @1s",
		"compensated: a=compensated b=compensated [b a]"},
	{"the probe does not answer", "open b:probe b.probe=lost fail turn @1.1s", "quarantined: b=quarantined []"},
	{"the probe fails", "open b:probe b.probe=fail,absent fail turn @1.1s", "failed: b=skipped []"},
	{"doubt stops what depends on it and nothing else", "open a< a+ b<:probe b? b.probe=inconclusive c< c+ fail turn @1s",
		"quarantined: a=compensated b=quarantined c=compensated [c a]"},
	{"no probe for what is known", "open a:probe a+ a.probe=absent fail turn", "compensated: a=compensated [a]"},
	{"a forward completes while the probe is out", "open a:probe a.probe=late fail turn a+ turn",
		"compensated: a=compensated [a]"},
	{"a forward fails while the probe is out", "open a:probe b b+ a.probe=late fail turn a- turn",
		"compensated: a=skipped b=compensated [b]"},
	{"absent, and it completes before it is skipped: undone", "open a:probe a? a.probe=lost,absent fail turn b b=late " +
		"turn @1s a+ tell:b#1=done turn", "compensated: a=compensated b=compensated [a]"},
	{"absent, and then it completes: a duty, asked about again",
		"open a:probe a? a.probe=absent,present fail turn a+ turn", "compensated: a=skipped a~1=compensated [a~1]"},
	{"absent, completed, and gone when asked again", "open a:probe a? a.probe=absent a~1.probe=absent fail turn a+ turn",
		"failed: a=skipped a~1=skipped []"},
	{"an undo without an answer is asked about: gone", "open a:blind a+ a=lost a.probe=absent fail turn @1s",
		"compensated: a=compensated []"},
	{"what the probe finds gone needs no check",
		"open a:blind+verify a+ a=lost a.probe=absent a.verify=there fail turn @1s", "compensated: a=compensated []"},
	{"an undo without an answer is asked about: still there", "open a:blind a+ a=lost,done fail turn @1s",
		"compensated: a=compensated [a]"},
	{"an undo without an answer, whose forward may still land, is sent again",
		"open a:blind+refused a=lost,done a.probe=absent fail turn @1s", "compensated: a=compensated [a]"},
	{"but not when a probe has seen its effect: then gone is undone",
		"open a:probe a=lost a.probe=present,absent fail turn @1s", "compensated: a=compensated []"},
	{"what ends with its caller, by clocks that differ, may still run", "open a:never+grace=2s fail turn @6.9s",
		"unwinding: a=settling []"},
	{"and after that it has ended", "open a:never+grace=2s fail turn @6.9s @7s", "compensated: a=compensated [a]"},
	{"it has ended where its caller says so", "open a:never+grace=2s a? fail turn", "compensated: a=compensated [a]"},
	{"absent is believed of it by the same clocks", "open a:never+grace=2s+probe a.probe=absent fail turn @3s @6.9s",
		"unwinding: a=settling []"},
	{"and skips it after that", "open a:never+grace=2s+probe a.probe=absent fail turn @3s @6.9s @7s",
		"failed: a=skipped []"},
	{"nor when the last question has", "open a:blind a=lost a.probe=present,absent fail turn @10s",
		"compensated: a=compensated []"},
	{"the provider may have forgotten the key, and the forward may land: neither is safe yet",
		"open a:dedupe+blind+refused a=fail a.probe=absent fail turn @29s", "unwinding: a=waiting []"},
	{"once it cannot land, nothing there is undone",
		"open a:dedupe+blind+refused a=fail a.probe=absent fail turn @29s @31s", "compensated: a=compensated []"},
	{"no attempt has an answer, and the forward may land: asked again after that",
		"open a:blind+refused a=lost a.probe=absent fail turn @1s @29s", "unwinding: a=waiting []"},
	{"and nothing there then is undone", "open a:blind+refused a=lost a.probe=absent fail turn @1s @31s",
		"compensated: a=compensated []"},
	{"and what is there is its owner's, for no attempt is left",
		"open a:blind+refused a=lost a.probe=absent,absent,present fail turn @1s @31s", "quarantined: a=quarantined []"},
	// A forward that its caller has given up may still land.
	{"absent while it may land skips nothing", "open a:probe+may a? a.probe=absent fail turn", "unwinding: a=settling []"},
	{"it is asked about again once it cannot", "open a:probe+may a? a.probe=absent fail turn @29s @31s",
		"failed: a=skipped []"},
	{"and has landed meanwhile", "open a:probe+may a? a.probe=absent,present fail turn @31s",
		"compensated: a=compensated [a]"},
	{"what is there is undone at once", "open a:probe+may a? fail turn", "compensated: a=compensated [a]"},
	{"without a probe its undo waits as long", "open a:may a? fail turn @29s", "unwinding: a=settling []"},
	{"and is sent once", "open a:may a? fail turn @31s", "compensated: a=compensated [a]"},
	{"as long as the contract says", "open a:settle=5s a? fail turn @6s", "compensated: a=compensated [a]"},
	{"or as its timeout, where that says nothing", "open a:may+timeout=3s a? fail turn @2s @4s",
		"compensated: a=compensated [a]"},
	{"what it came after waits, and nothing else", "open a a+ b< b+ c<a:may c? fail turn",
		"unwinding: a=owed b=compensated c=settling [b]"},
	{"a forward completes that its blind undo did not bar: what was asked before is asked again",
		"open a:blind+refused a=lost,done a.probe=late,present fail turn @1s a+ turn @2s",
		"compensated: a=compensated [a]"},
	{"its provider refuses it: undone at once", "open a:refused a? fail turn", "compensated: a=compensated [a]"},
	{"and unasked", "open a:refused+probe a? a.probe=absent fail turn", "compensated: a=compensated [a]"},
	{"what completes then was undone", "open a:refused fail turn a+ turn", "compensated: a=compensated [a]"},
	{"no outcome yet: its caller has its grace", "open a:may+grace=2s fail turn @2s a+ turn",
		"compensated: a=compensated [a]"},
	{"or was refused", "open a:may+grace=2s fail turn @2s a- turn", "failed: a=skipped []"},
	{"an irreversible act has its grace, too", "open a:irr+may+grace=2s fail turn @2s a- turn", "failed: a=skipped []"},
	{"no outcome: asked after the grace, and after it has settled",
		"open a:probe+settle=5s+grace=2s a.probe=absent fail turn @3s @8s", "failed: a=skipped []"},
	{"given up only now: it settles from then on", "open a:probe+settle=5s+grace=2s a.probe=absent fail turn @3s a? @7s",
		"unwinding: a=settling []"},
	{"with a timeout, from when that is over", "open a:settle=5s+timeout=20s+grace=2s fail turn @26s @28s",
		"compensated: a=compensated [a]"},
	{"given up after its blind undo: a duty", "open a:settle=1s+grace=1s fail turn @3s a? turn",
		"unwinding: a=compensated a~1=settling [a]"},
	{"which is undone once it has settled", "open a:settle=1s+grace=1s fail turn @3s a? turn @5s",
		"compensated: a=compensated a~1=compensated [a a~1]"},
	{"given up, and completed after all: the duty knows", "open a:settle=1s+grace=1s fail turn @3s a? turn a+ turn",
		"compensated: a=compensated a~1=compensated [a a~1]"},
	{"given up, and refused after all: so does it", "open a:settle=1s+grace=1s fail turn @3s a? turn a- turn",
		"compensated: a=compensated a~1=skipped [a]"},
	{"given up after it was skipped: asked about again", "open a:probe+settle=1s+grace=1s a.probe=absent fail turn @2s " +
		"@3s a? @4s a.probe=present @5s", "compensated: a=skipped a~1=compensated [a~1]"},
	{"given up after its owner has answered: the owner is asked again",
		"open a:settle=1s+grace=1s a=stop fail turn @3s resolve:a turn a? turn",
		"quarantined: a=resolved a~1=quarantined []"},
	{"its owner has it undone: that waits, too", "open a:askme+settle=9s+grace=1s fail turn @2s retry:a turn",
		"unwinding: a=settling []"},
	{"the first word about an attempt counts", "open a:blind a+ a=late fail turn tell:a#1=stop =tell:a#1=fail " +
		"=tell:a#1=stop turn", "quarantined: a=quarantined []"},
	{"an undo without an answer, and nobody knows", "open a:blind a+ a=lost a.probe=inconclusive fail turn @1s",
		"quarantined: a=quarantined []"},
	{"the last attempt without an answer is asked about too",
		"open a:blind a+ a=lost a.probe=present,absent fail turn @1s", "compensated: a=compensated []"},
	{"attempts spent, and it still stands", "open a:blind a+ a=lost fail turn @1s", "quarantined: a=quarantined []"},
	{"a provider that may have forgotten the key is asked first", "open a:dedupe a+ a=fail a.probe=absent fail turn @30s",
		"compensated: a=compensated []"},
	{"and sent to again when the effect still stands", "open a:dedupe a+ a=fail,done fail turn @25s",
		"compensated: a=compensated [a]"},
	{"an attempt without an answer may still act: a key that is older than the answer is asked about again",
		"open a:dedupe a+ a=lost,done a.probe=present,absent fail turn @30s", "compensated: a=compensated []"},

	{"a duplicate that is still there is no second duty", "open b:probe b? b.probe=duplicate b=lost,done fail turn @1s",
		"compensated: b=compensated b~1=compensated [b~1 b]"},
	{"a retry after the provider has forgotten the key asks first",
		"open a:dedupe a+ a=stop a.probe=absent fail turn @30s retry:a turn", "compensated: a=compensated []"},

	// A check after the undo.
	{"verified", "open a:verify a+ fail turn", "compensated: a=compensated [a]"},
	{"done, but still there: tried again", "open a:verify a+ a.verify=there,gone fail turn @1s",
		"compensated: a=compensated [a a]"},
	{"done, but still there, each time", "open a:verify a+ a.verify=there fail turn @1s",
		"quarantined: a=quarantined [a a]"},
	{"done, and nobody can say", "open a:verify a+ a.verify=lost fail turn @1s", "quarantined: a=quarantined [a]"},
	{"a failure that is reported twice counts once",
		"open a a+ a=late fail turn tell:a#1=fail =tell:a#1=fail a=done turn @1s", "compensated: a=compensated [a]"},
	{"reported done, and checked", "open a:verify a+ a=late a.verify=there,gone fail turn tell:a#1=done turn @1s " +
		"tell:a#2=done turn", "compensated: a=compensated []"},

	{"reported done while it is asked about, and checked",
		"open a:blind+verify a+ a=lost a.probe=late fail turn tell:a#1=done turn", "compensated: a=compensated []"},
	{"reported done before it is asked about again",
		"open a:blind+verify a+ a=lost a.probe=inconclusive fail turn tell:a#1=done turn", "compensated: a=compensated []"},

	// Pivots, the owner's word, windows.
	{"a pivot is its owner's", "open a a+ b:pivot b+ c c+ fail turn",
		"quarantined: a=owed b=quarantined c=compensated [c]"},
	{"who lets the unwind go on past it", "open a a+ b:pivot b+ c c+ fail turn retry:b turn",
		"compensated: a=compensated b=compensated c=compensated [c b a]"},
	{"a pivot that failed is none", "open a a+ b:pivot b- fail turn", "compensated: a=compensated b=skipped [a]"},
	{"an undo that wants the owner's word", "open a:approve a+ fail turn", "quarantined: a=quarantined []"},
	{"and gets it", "open a:approve a+ fail turn retry:a turn", "compensated: a=compensated [a]"},
	{"inside the undo window", "open a:for=1m a+ @59s fail turn", "compensated: a=compensated [a]"},
	{"behind the undo window", "open a:for=1m a+ b b+ @60s fail turn", "quarantined: a=quarantined b=compensated [b]"},
	{"behind a window by the calendar", "open a:until=1m a+ @1m fail turn", "quarantined: a=quarantined []"},
	{"the window closes between two attempts", "open a:for=1500ms a+ a=fail @1s fail turn @2s",
		"quarantined: a=quarantined []"},

	// on_undo_failure.
	{"continue undoes what it depended on", "open:continue a a+ b b+ c c+ b=stop fail turn",
		"quarantined: a=compensated b=quarantined c=compensated [c a]"},
	{"and its owner's retry makes it whole", "open:continue a a+ b b+ b=stop fail turn b=done retry:b turn",
		"compensated: a=compensated b=compensated [a b]"},
	{"or the owner's word", "open:continue a a+ b b+ b=stop fail turn skip:b turn",
		"resolved: a=compensated b=resolved [a]"},

	// The owner, once more.
	{"skip goes on without it", "open a a+ b b+ b=stop fail turn skip:b turn", "resolved: a=compensated b=resolved [a]"},
	{"a second approver is another operator", "open:second a a+ a=stop fail turn resolve:a turn resolve:a turn",
		"quarantined: a=quarantined []"},
	{"who says the same", "open:second a a+ a=stop fail turn resolve:a@ann skip:a@bob turn",
		"quarantined: a=quarantined []"},
	{"and then it counts", "open:second a a+ a=stop fail turn resolve:a@ann resolve:a@bob turn",
		"resolved: a=resolved []"},
	{"about an orphan, too", "open:second a a+ !lone:x fail turn resolve:x@ann resolve:x@ann skip:x@bob turn",
		"quarantined: a=compensated [a]"},
	{"until another operator has said the same", "open:second a a+ !lone:x fail turn resolve:x@ann resolve:x@bob turn",
		"resolved: a=compensated [a]"},
	{"retry, too", "open:second a a+ a=stop fail turn a=done retry:a@ann retry:a@bob turn",
		"compensated: a=compensated [a]"},
	{"no retry while an attempt may be at work (S29)", "open a a+ a=lost fail turn @1s !retry:a @20s !retry:a",
		"quarantined: a=quarantined []"},
	{"unless it is forced (S29)", "open a a+ a=lost fail turn @1s a=done force:a turn", "compensated: a=compensated [a]"},
	{"or its time has passed", "open a a+ a=lost fail turn @1s a=done @40s retry:a turn",
		"compensated: a=compensated [a]"},

	// Savepoints.
	{"back to a savepoint, and open again", "open a a+ save:s b b+ c c+ back:s turn",
		"open: a=held b=compensated c=compensated [c b]"},
	{"and committed later", "open a a+ save:s b b+ back:s turn c c+ commit turn",
		"committed: a=retired b=compensated c=retired [b]"},
	{"and undone later, once each", "open a a+ save:s b b+ back:s turn c c+ fail turn",
		"compensated: a=compensated b=compensated c=compensated [b c a]"},
	{"nothing came after it", "open a a+ save:s back:s turn", "open: a=held []"},
	{"back twice", "open a a+ save:s b b+ back:s turn c c+ back:s turn", "open: a=held b=compensated c=compensated [b c]"},
	{"an unknown savepoint", "open a a+ save:s =again !save:s !back:x !undo:x b !save:s fail turn",
		"compensated: a=compensated b=compensated [b a]"},
	{"a later savepoint is gone", "open a a+ save:s b b+ save:t back:s turn !back:t", "open: a=held b=compensated [b]"},
	{"an operator goes back", "open a a+ save:s b b+ undo:s turn", "open: a=held b=compensated [b]"},
	{"a branch that was there before stays", "open a a+ save:s b< b+ c< c+ back:s turn",
		"open: a=held b=compensated c=compensated [c b]"},
	{"a quarantine on the way back", "open a a+ save:s b b+ c c+ b=stop back:s turn",
		"quarantined: a=held b=quarantined c=compensated [c]"},
	{"and on, after its owner", "open a a+ save:s b b+ c c+ b=stop back:s turn resolve:b turn",
		"open: a=held b=resolved c=compensated [c]"},
	{"a failure on the way back undoes all", "open a a+ save:s b b+ b=late back:s turn fail tell:b#1=done turn",
		"compensated: a=compensated b=compensated [a]"},
	{"the deadline passes on the way back", "open@5s a a+ save:s b b+ b=late back:s @6s tell:b#1=done turn",
		"compensated: a=compensated b=compensated [a]"},
	{"no commit on the way back", "open a a+ save:s b b+ b=late back:s turn !commit tell:b#1=done turn commit turn",
		"committed: a=retired b=compensated []"},
	{"a pair on the way back goes back too", "open a a+ save:s b b+ b=late back:s turn c c+ turn tell:b#1=done turn",
		"open: a=held b=compensated c=compensated [c]"},
	{"what was rewound completes late", "open a a+ save:s b back:s turn b+ turn",
		"open: a=held b=compensated b~1=compensated [b b~1]"},

	{"what was rewound completes late, and the contract asks its owner", "open a a+ save:s b:lateask back:s turn b+ turn",
		"quarantined: a=held b=compensated b~1=quarantined [b]"},

	{"what was rewound completes after the commit: given up like the rest",
		"open a a+ save:s b back:s turn commit turn b+ turn", "committed: a=retired b=compensated b~1=retired [b]"},
	{"and undone with the rest by its owner", "open a a+ save:s b back:s turn commit turn b+ turn undo turn",
		"committed: a=retired b=compensated b~1=retired [b b~1 a]"},
	{"what was rewound completes after a child's commit: its root's",
		"open a a+ q/open^ q/x q/x+ q/save:s q/y q/back:s turn q/commit q/y+ turn fail turn",
		"compensated: a=compensated plan:q=compensated [y y~1 x a]"},

	// Child plans.
	{"a child's held set stays with its parent after its own commit", "open a a+ q/open^ q/x q/x+ q/commit turn",
		"open: a=held plan:q=held []"},
	{"it retires with the root", "open a a+ q/open^ q/x q/x+ q/commit b b+ commit turn",
		"committed: a=retired plan:q=retired b=retired []"},
	{"it unwinds in its place", "open a a+ q/open^ q/x q/x+ q/y q/y+ q/commit b b+ fail turn",
		"compensated: a=compensated plan:q=compensated b=compensated [b y x a]"},
	{"an open child too", "open a a+ q/open^ q/x q/x+ b b+ fail turn",
		"compensated: a=compensated plan:q=compensated b=compensated [b x a]"},
	{"a child fails by itself, and its parent goes on", "open a a+ q/open^ q/x q/x+ q/fail turn b b+ commit turn",
		"committed: a=retired plan:q=compensated b=retired [x]"},
	{"no commit while a child is open", "open a a+ q/open^ q/x q/x+ !commit q/commit commit turn",
		"committed: a=retired plan:q=retired []"},
	{"no commit of a child whose root unwinds", "open a a+ a=late q/open^a q/x q/x+ x=late fail turn !q/commit",
		"unwinding: a=owed plan:q=dispatched []"},
	{"a child's quarantine halts what it came after", "open a a+ q/open^ q/x q/x+ q/commit b b+ x=stop fail turn",
		"quarantined: a=owed plan:q=quarantined b=compensated [b]"},
	{"and its owner lets both go on", "open a a+ q/open^ q/x q/x+ q/commit b b+ x=stop fail turn q/resolve:x turn",
		"resolved: a=compensated plan:q=resolved b=compensated [b a]"},
	{"the answer belongs to the child", "open q/open^ q/x q/x+ x=stop fail turn !resolve:plan:q",
		"quarantined: plan:q=quarantined []"},
	{"a child of a child", "open a a+ q/open^ q/x q/x+ r/open^q.x r/y r/y+ r/commit q/commit fail turn",
		"compensated: a=compensated plan:q=compensated [y x a]"},
	{"a verdict on a committed child's action undoes the root",
		"open a a+ q/open^ q/x q/x+ q/commit b b+ q/judge:x=block* turn",
		"compensated: a=compensated plan:q=compensated b=compensated [b x a]"},
	{"a late pair of an ended child", "open q/open^ q/x q/x+ fail turn q/y q/y+ turn",
		"compensated: plan:q=compensated [x y]"},
	{"a child of a plan that was never opened fails", "open q/open^nope.x q/x q/x+ turn", "open:  [x]"},
	{"a child of a committed plan fails", "open commit turn q/open^ q/x q/x+ turn", "committed:  [x]"},
	{"an empty child", "open a a+ q/open^ q/commit fail turn", "compensated: a=compensated plan:q=skipped [a]"},
	{"children side by side", "open a a+ q/open^a r/open^a q/x q/x+ r/y r/y+ q/commit x=late fail turn",
		"unwinding: a=owed plan:q=dispatched plan:r=compensated [y]"},
	{"a child inside a savepoint", "open a a+ save:s q/open^ q/x q/x+ q/commit back:s turn",
		"open: a=held plan:q=compensated [x]"},

	{"a child on its way back is undone whole when its parent is", "open a a+ q/open^ q/x q/x+ q/save:s q/y q/y+ y=late " +
		"q/back:s turn fail turn q/tell:y#1=done turn", "compensated: a=compensated plan:q=compensated [x a]"},
	{"a child back from its owner is undone whole too", "open a a+ q/open^ q/x q/x+ q/save:s q/y q/y+ y=stop q/back:s " +
		"turn fail turn q/resolve:y turn", "resolved: a=compensated plan:q=resolved [x a]"},
	{"no undo of a committed plan while a child of it is being undone",
		"open a a+ q/open^ q/x q/x+ q/fail turn commit turn q/y q/y+ y=late turn !undo q/tell:y#1=done turn undo turn",
		"committed: a=retired plan:q=compensated [x a]"},

	// Late pairs and late outcomes.
	{"a pair during the unwind joins", "open a a+ b b+ b=late fail turn c c+ turn tell:b#1=done turn",
		"compensated: a=compensated b=compensated c=compensated [c a]"},
	{"a pair behind a late duty comes after what was registered last, too",
		"open:continue a b b+ b=stop a=late fail turn a+ c c=late turn b=done retry:b turn",
		"unwinding: a=dispatched b=owed a~1=owed c=dispatched []"},
	{"all that came before waits for a late pair",
		"open a a+ b b+ c c+ b=late fail turn d d+ d=late turn tell:b#1=done turn",
		"unwinding: a=owed b=compensated c=compensated d=dispatched [c]"},
	{"and goes on after it", "open a a+ b b+ c c+ b=late fail turn d d+ d=late turn tell:b#1=done turn tell:d#1=done turn",
		"compensated: a=compensated b=compensated c=compensated d=compensated [c a]"},
	{"a pair after the end is undone too", "open a a+ fail turn b turn", "compensated: a=compensated b=compensated [a b]"},
	{"a pair after the end, into quarantine", "open a a+ fail turn b:irr b+ turn",
		"quarantined: a=compensated b=quarantined [a]"},
	{"a pair after a failed end", "open a a- fail turn b b+ turn", "compensated: a=skipped b=compensated [b]"},
	{"a pair in quarantine", "open a a+ a=stop fail turn b b+ turn", "quarantined: a=quarantined b=compensated [b]"},
	{"a pair behind a resolved plan is its owner's", "open a a+ a=stop fail turn resolve:a turn !b turn",
		"quarantined: a=resolved []"},
	{"completion during a blind undo is a duty of its own", "open a a+ b b=late fail turn b+ tell:b#1=done turn",
		"compensated: a=compensated b=compensated b~1=compensated [b~1 a]"},
	{"and where the contract says so, its owner's", "open a a+ b:lateask b=late fail turn b+ tell:b#1=done turn",
		"quarantined: a=owed b=compensated b~1=quarantined []"},
	{"a blind undo that failed is not tried again once the forward completed", "open a b b=fail fail turn b+ turn",
		"compensated: a=compensated b=skipped b~1=compensated [b~1 a]"},
	{"a forward that was given up completes after all", "open a a+ b b- fail turn b+ turn",
		"compensated: a=compensated b=skipped b~1=compensated [a b~1]"},
	{"completion after a failure is believed", "open a a+ b b- b+ fail turn",
		"compensated: a=compensated b=compensated [b a]"},
	{"an effectless forward that completes late owes nothing", "open a a+ b:eff fail turn b+ turn",
		"compensated: a=compensated b=skipped [a]"},
	{"completion after its owner said it is undone", "open a:askme fail turn resolve:a turn a+ turn",
		"quarantined: a=resolved a~1=quarantined []"},
	{"completion after its owner went on without it", "open a:askme fail turn skip:a turn a+ turn",
		"quarantined: a=resolved a~1=quarantined []"},
	{"completion of what waits for its owner", "open a:askme fail turn a+ retry:a turn", "compensated: a=compensated [a]"},
	{"completion after the plan was compensated", "open a a+ b fail turn b+ turn",
		"compensated: a=compensated b=compensated b~1=compensated [b a b~1]"},
	{"completion after the plan was resolved", "open a< a+ b< a=stop fail turn resolve:a turn b+ turn",
		"resolved: a=resolved b=compensated b~1=compensated [b b~1]"},
	{"completion before the undo leaves is no doubt", "open a a=fail,done fail turn a+ @1s",
		"compensated: a=skipped a~1=compensated [a~1]"},
	{"failure after a blind undo", "open a a+ b fail turn b- turn", "compensated: a=compensated b=compensated [b a]"},

	{"completion after a committed plan was undone blindly", "open:accept a commit turn undo turn a+ turn",
		"committed: a=retired [a a~1]"},

	// Copies and contradictions.
	{"copies change nothing", "open =again a =again a+ =again b b- =again c c? =again fail =again turn =again",
		"compensated: a=compensated b=skipped c=compensated [c a]"},
	{"a copy of the commit", "open a a+ commit =again turn =again", "committed: a=retired []"},
	{"a second opening differs", "open !open:3", "open:  []"},
	{"the first outcome stands", "open a a+ !a- !a? b b- !b? fail turn", "compensated: a=compensated b=skipped [a]"},
	{"one id, two acts", "open a !a:irr", "open: a=held []"},
	{"an outcome of nothing", "open !a+ !a- !a?", "open:  []"},

	// Workers that report later.
	{"reported done", "open a a+ a=late fail turn tell:a#1=done turn", "compensated: a=compensated []"},
	{"reported failed, then tried again", "open a a+ a=late,done fail turn tell:a#1=fail turn @1s",
		"compensated: a=compensated [a]"},
	{"reported stop", "open a a+ a=late fail turn tell:a#1=stop turn", "quarantined: a=quarantined []"},
	{"a report twice", "open a a+ a=late fail turn tell:a#1=done =tell:a#1=done turn !tell:a#1=done",
		"compensated: a=compensated []"},
	{"done stands against failed", "open a a+ a=late fail turn tell:a#1=done =tell:a#1=fail turn",
		"compensated: a=compensated []"},
	{"failed, then done after all", "open a a+ a=late fail turn tell:a#1=fail tell:a#1=done turn",
		"compensated: a=compensated []"},
	{"a report of no attempt", "open a a+ !tell:a#1=done a=late fail turn !tell:a#2=done !tell:a#0=done turn",
		"unwinding: a=dispatched []"},
	{"a report after quarantine", "open a a+ a=lost fail turn @1s tell:a#2=done turn =tell:a#1=done !tell:a#2=fail",
		"quarantined: a=quarantined []"},

	// Verdicts.
	{"a block undoes (S76)", "open a a+ b b+ judge:a=block* turn", "compensated: a=compensated b=compensated [b a]"},
	{"a redirect undoes", "open a a+ judge:a=redirect* turn", "compensated: a=compensated [a]"},
	{"allow does not", "open a a+ judge:a=allow turn @1h", "open: a=held []"},
	{"allow, then block", "open a a+ judge:a=allow turn judge:a=block* turn", "compensated: a=compensated [a]"},
	{"block, then allow: it fired", "open a a+ judge:a=block* judge:a=allow turn", "compensated: a=compensated [a]"},
	{"a verdict after the commit", "open a a+ commit judge:a=block* turn", "committed: a=retired [a]"},
	{"a verdict before the commit (S76)", "open a a+ judge:a=block* !commit turn", "compensated: a=compensated [a]"},
	{"a verdict on nothing", "open !judge:a=block*", "open:  []"},

	// Deadlines.
	{"a deadline", "open@5s a a+ @4999ms @5s", "compensated: a=compensated [a]"},
	{"committed in time", "open@5s a a+ @4s commit @1h", "committed: a=retired []"},
	{"a deadline that has passed when it is declared", "open@0s a a+ turn", "compensated: a=compensated [a]"},
	{"failure before the deadline", "open@5s a a+ fail turn @1h", "compensated: a=compensated [a]"},
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	playAll(t, schedules)
}

func TestADeadlineUndoesWithoutTheAgent(t *testing.T) {
	for _, d := range []time.Duration{50 * time.Millisecond, 21 * 24 * time.Hour} {
		w := newWorld(t)
		w.must(w.agent("p", opened(epoch0+int64(d))))
		w.do("p", "a", "b")
		w.at(d - 1)
		w.wantState("p", "open", "a=held b=held")
		if wake, ok := w.state.NextWake(); !ok || wake != epoch0+int64(d) {
			t.Fatalf("wakes at %d, %v", wake-epoch0, ok)
		}
		w.at(d)
		w.wantState("p", "compensated", "a=compensated b=compensated")
	}
}

// TestAttemptsFollowTheClock: backoff doubles up to its limit, and every attempt
// has the same key (S22).
func TestAttemptsFollowTheClock(t *testing.T) {
	w := newWorld(t)
	var instants []time.Duration
	keys := map[string]bool{}
	w.worker = func(c Command) *api.Reply {
		instants = append(instants, time.Duration(w.now-epoch0))
		keys[c.Key] = true
		if int(c.Attempt) != len(instants) {
			t.Errorf("attempt %d is the %dth", c.Attempt, len(instants))
		}
		return &api.Reply{Status: api.StatusFailed}
	}
	w.must(w.agent("p", opened(0)))
	w.must(w.agent("p", pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Attempts, c.BackoffNs, c.BackoffMaxNs = 5, 2*second, 5*second
	})...))
	w.must(w.agent("p", completed("a")))
	w.must(w.agent("p", planFailed()))
	for range 1000 {
		w.turn()
		next, ok := w.state.NextWake()
		if !ok {
			break
		}
		if next > w.now+1 {
			w.now = next - 1
			w.turn()
		}
		w.now = max(next, w.now)
	}
	want := []time.Duration{0, 2 * time.Second, 6 * time.Second, 11 * time.Second, 16 * time.Second}
	if len(instants) != len(want) || len(keys) != 1 || !keys[undoKey("a")] {
		t.Fatalf("attempts at %v with keys %v", instants, keys)
	}
	for i := range want {
		if instants[i] != want[i] {
			t.Fatalf("attempts at %v, want %v", instants, want)
		}
	}
	w.wantState("p", "quarantined", "a=quarantined")
}

// TestConcurrencyIsBounded: never more undos in flight than the plan allows, and
// no fewer while there is something to do.
func TestConcurrencyIsBounded(t *testing.T) {
	for limit, want := range map[string]int{"open:1": 1, "open:3": 3, "open": ConcurrencyDefault} {
		s := newSchedule(t)
		s.play(limit)
		for _, id := range strings.Fields("a b c d e f g h i j k l") {
			s.play(id + "< " + id + "+ " + id + "=late")
		}
		s.play("fail turn")
		for left := 12; left > 0; left-- {
			flying := s.state.InFlight()
			if len(flying) != min(want, left) {
				t.Fatalf("%s: %d in flight with %d left", limit, len(flying), left)
			}
			s.play("tell:" + flying[0].Action + "#1=done turn")
		}
		if state := s.show("p").State; state != "compensated" {
			t.Fatal(state)
		}
	}
}

// TestAQuarantineIsExplained: which action, which capability, which error, once,
// and what is outstanding (S42, S44, I23).
func TestAQuarantineIsExplained(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b b+ c c+ b=stop fail turn turn")
	b := s.show("p").Actions[1]
	if b.Note != "undo.b failed: protected: never" {
		t.Fatalf("note %q", b.Note)
	}
	var quarantines, ends int
	for _, e := range s.effective() {
		if e.GetActionQuarantined() != nil {
			quarantines++
		}
		if k := e.GetPlanEnded(); k != nil {
			ends++
			if k.End != pb.PlanEnd_PLAN_END_QUARANTINED || strings.Join(k.Outstanding, " ") != "a b" || k.Compensated != 1 {
				t.Fatalf("%v", k)
			}
		}
	}
	if quarantines != 1 || ends != 1 {
		t.Fatalf("%d quarantines, %d ends", quarantines, ends)
	}
	state, _, outstanding, _ := view.NewReader(s.kv, "t", nil).Outcome("p")
	if state != "quarantined" || strings.Join(outstanding, " ") != "b" {
		t.Fatalf("%s %v", state, outstanding)
	}
	if list, next := view.NewReader(s.kv, "t", nil).Quarantined(api.ListQuery{}); len(list) != 1 || list[0].Plan != "p" ||
		len(list[0].Actions) != 1 || next != "" {
		t.Fatalf("%v", list)
	}
}

// effective refolds the ledger and returns its effective records.
func (w *world) effective() []*pb.Record {
	w.t.Helper()
	var out []*pb.Record
	s := OpenWith(rows.NewMemoryKV(), "t", w, w.programs)
	for _, m := range w.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range entries {
			if s.Apply(e).Verdict == Effective {
				out = append(out, e.Record)
			}
		}
	}
	return out
}

// TestAHealthySiblingIsCompensated in the same turn in which another plan is
// quarantined (S47), and a second sweep says nothing (S46).
func TestAHealthySiblingIsCompensated(t *testing.T) {
	w := newWorld(t)
	w.worker = func(c Command) *api.Reply {
		if c.Plan == "bad" {
			return &api.Reply{Status: api.StatusStop}
		}
		return &api.Reply{Status: api.StatusDone}
	}
	for _, plan := range []string{"bad", "good"} {
		w.must(w.agent(plan, opened(0)))
		w.do(plan, "a")
		w.must(w.agent(plan, planFailed()))
	}
	w.turn()
	w.wantState("bad", "quarantined", "a=quarantined")
	w.wantState("good", "compensated", "a=compensated")
	before, digest := len(w.log), rows.Digest(w.kv)
	w.turn()
	w.at(1000 * time.Hour)
	if len(w.log) != before || rows.Digest(w.kv) != digest {
		t.Fatal("a second sweep changed something")
	}
}

// TestALateCopyOfADecisionIsVoid: the server has forgotten the id of a commit, and a
// copy of it arrives when its owner has asked for another try.
func TestALateCopyOfADecisionIsVoid(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ a=stop fail")
	var commits [][]*pb.Record
	for range 3 {
		var answers []Answer
		for _, c := range s.state.Commands() {
			answers = append(answers, Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt,
				Reply: s.answer(c)})
		}
		records := s.decide(answers)
		if len(records) == 0 {
			break
		}
		commits = append(commits, records)
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
	}
	s.wantState("p", "quarantined", "a=quarantined")
	s.play("retry:a")
	s.wantState("p", "unwinding", "a=ready")
	before := s.state.Meta().GetDecided()
	for _, copied := range commits {
		for i, got := range s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, copied...) {
			if got.Verdict != Void || !strings.Contains(got.Reason, "other decisions stand at") {
				t.Errorf("record %d of the copy is %+v", i, got)
			}
		}
	}
	if s.state.Meta().GetDecided() != before {
		t.Error("a copy counts as a decision")
	}
	s.wantState("p", "unwinding", "a=ready")
	s.play("a=done turn")
	s.wantState("p", "compensated", "a=compensated")
}
