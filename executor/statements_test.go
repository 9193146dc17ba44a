package executor_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Each numbered statement of the requirements has a script of its number, and a test
// that plays it: testdata/statements/S27.txt begins with the statement. Where another
// layer shows the rest, a comment of the script names the test that does.

func statement(t *testing.T, id string) {
	t.Helper()
	runScript(t, scriptOf(id), nil)
}

func scriptOf(id string) string { return filepath.Join("testdata", "statements", id+".txt") }

// stated are the numbers that have a script.
var stated = [...]struct{ from, to int }{{1, 32}, {41, 54}, {58, 65}, {76, 87}, {93, 93}, {95, 95}, {97, 109}}

// TestEveryStatementHasItsScript, which begins with it, and its test; and no script is
// left over.
func TestEveryStatementHasItsScript(t *testing.T) {
	tests, err := os.ReadFile("statements_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(scriptOf("*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range stated {
		for n := r.from; n <= r.to; n++ {
			id := fmt.Sprint("S", n)
			text, err := os.ReadFile(scriptOf(id))
			if err != nil || !strings.HasPrefix(string(text), "# "+id+": ") {
				t.Errorf("%s does not begin with its statement: %v", scriptOf(id), err)
			}
			if !regexp.MustCompile(`func Test` + id + `[A-Z]\w+\(t \*testing\.T\) +\{ statement\(t, "` + id + `"\) \}`).
				Match(tests) {
				t.Errorf("%s has no test", id)
			}
			files = slices.DeleteFunc(files, func(f string) bool { return f == scriptOf(id) })
		}
	}
	if len(files) > 0 {
		t.Errorf("scripts of no statement: %v", files)
	}
}

// TestScriptsNameTestsThatExist: what a script says another layer shows is there.
func TestScriptsNameTestsThatExist(t *testing.T) {
	named := regexp.MustCompile(`\bTest[A-Z]\w+`)
	exist := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, f := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllSubmatch(text, -1) {
				exist[string(f[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range named.FindAllString(string(text), -1) {
			if !exist[name] {
				t.Errorf("%s names %s, which is nowhere", file, name)
			}
		}
	}
}

// TestS4TheDocsNameWhatAWorkerReadsAndSays: every field of a command and of a reply is
// in docs/workers.md, and the guide has a page for each subject.
func TestS4TheDocsNameWhatAWorkerReadsAndSays(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "workers.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []reflect.Type{reflect.TypeFor[api.Command](), reflect.TypeFor[api.AgentTask](),
		reflect.TypeFor[api.Reply]()} {
		for i := range body.NumField() {
			name, _, _ := strings.Cut(body.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(string(text), "`"+name+"`") && !strings.Contains(string(text), `"`+name+`"`) {
				t.Errorf("docs/workers.md does not name %s of a %s", name, body.Name())
			}
		}
	}
	for page, words := range map[string][]string{
		"contracts.md":  {"`with`", "worker_version", "blind_cleanup", "dirty_failure", "has_forward_output", "Keys are 32"},
		"doubt.md":      {"present", "absent", "duplicate", "inconclusive", "dedupe"},
		"order.md":      {"halt", "continue", "Savepoint", "Child plans", "Pivot"},
		"quarantine.md": {"retry", "resolve", "skip", "--force", "--evidence"},
	} {
		text, err := os.ReadFile(filepath.Join("..", "docs", "guide", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !strings.Contains(string(text), word) {
				t.Errorf("docs/guide/%s says nothing of %s", page, word)
			}
		}
	}
}

// The statements, by their numbers.

func TestS1AFailedPlanUnwindsUnasked(t *testing.T) { statement(t, "S1") }

func TestS2EveryUndoIsARecordAndACommand(t *testing.T) { statement(t, "S2") }

func TestS3TheCoreOwnsTheOrder(t *testing.T) { statement(t, "S3") }

func TestS4TheWordsOfTheDocsAreTheWordsOfRecords(t *testing.T) { statement(t, "S4") }

func TestS5AForwardNamesItsCompensation(t *testing.T) { statement(t, "S5") }

func TestS6ArgumentsAreBoundToEarlierOutputs(t *testing.T) { statement(t, "S6") }

func TestS7TheWorkerVersionIsCarried(t *testing.T) { statement(t, "S7") }

func TestS8OneToolIsOneCall(t *testing.T) { statement(t, "S8") }

func TestS9ManyToolsAreATask(t *testing.T) { statement(t, "S9") }

func TestS10ATaskThatFailsIsNotDiagnosed(t *testing.T) { statement(t, "S10") }

func TestS11ARegistrationIsFrozen(t *testing.T) { statement(t, "S11") }

func TestS12KnownFailureStartsBeforeTheFailedAction(t *testing.T) { statement(t, "S12") }

func TestS13UncertainFailureIncludesTheAction(t *testing.T) { statement(t, "S13") }

func TestS14WithoutACompensationNothingIsCalled(t *testing.T) { statement(t, "S14") }

func TestS15NothingInScopeFails(t *testing.T) { statement(t, "S15") }

func TestS16AllSkippedIsCompensated(t *testing.T) { statement(t, "S16") }

func TestS17UnwindingLastsUntilAllIsDone(t *testing.T) { statement(t, "S17") }

func TestS18WhatBeganIsInScope(t *testing.T) { statement(t, "S18") }

func TestS19MetadataStandsBeforeArguments(t *testing.T) { statement(t, "S19") }

func TestS20AMissingTargetIsNull(t *testing.T) { statement(t, "S20") }

func TestS21TheSameCommandTwice(t *testing.T) { statement(t, "S21") }

func TestS22EveryCallCarriesTheKey(t *testing.T) { statement(t, "S22") }

func TestS23PromptAndModelAreFrozen(t *testing.T) { statement(t, "S23") }

func TestS24APromptIsForManyTools(t *testing.T) { statement(t, "S24") }

func TestS25AnUndoGoesOnOrStops(t *testing.T) { statement(t, "S25") }

func TestS26WhatCannotBeScheduledIsItsOwners(t *testing.T) { statement(t, "S26") }

func TestS27AStuckUndoIsDiagnosable(t *testing.T) { statement(t, "S27") }

func TestS28RecoveryByRestartOrRetry(t *testing.T) { statement(t, "S28") }

func TestS29ForceIsDeliberate(t *testing.T) { statement(t, "S29") }

func TestS30OneUndoForOneForward(t *testing.T) { statement(t, "S30") }

func TestS31TimingIsOnTheAttempt(t *testing.T) { statement(t, "S31") }

func TestS32UndosAreListed(t *testing.T) { statement(t, "S32") }

func TestS41AFailingUndoQuarantines(t *testing.T) { statement(t, "S41") }

func TestS42TheFailureIsNamedOnce(t *testing.T) { statement(t, "S42") }

func TestS43AQuarantinedPlanIsNotAmongTheCompensated(t *testing.T) { statement(t, "S43") }

func TestS44TheReasonIsReadable(t *testing.T) { statement(t, "S44") }

func TestS45AQuarantinedPlanIsNotInFlight(t *testing.T) { statement(t, "S45") }

func TestS46ASecondSweepChangesNothing(t *testing.T) { statement(t, "S46") }

func TestS47AHealthySiblingIsCompensated(t *testing.T) { statement(t, "S47") }

func TestS48NoPartialSuccess(t *testing.T) { statement(t, "S48") }

func TestS49NoNeedlessQuarantine(t *testing.T) { statement(t, "S49") }

func TestS50EveryKindIsClassified(t *testing.T) { statement(t, "S50") }

func TestS51TheFailureReachesTheCounts(t *testing.T) { statement(t, "S51") }

func TestS52NoRetryByItself(t *testing.T) { statement(t, "S52") }

func TestS53EveryCauseOfFailure(t *testing.T) { statement(t, "S53") }

func TestS54AnEndMeansWhatItSays(t *testing.T) { statement(t, "S54") }

func TestS58NothingOutlivesTheAgent(t *testing.T) { statement(t, "S58") }

func TestS59ACompensationStaysHeld(t *testing.T) { statement(t, "S59") }

func TestS60StepFiveFails(t *testing.T) { statement(t, "S60") }

func TestS61TheHeldSetIsATree(t *testing.T) { statement(t, "S61") }

func TestS62OnlyThePlansCommitRetires(t *testing.T) { statement(t, "S62") }

func TestS63ARegistrationIsDurable(t *testing.T) { statement(t, "S63") }

func TestS64APairOrNothing(t *testing.T) { statement(t, "S64") }

func TestS65NoActWithoutItsUndo(t *testing.T) { statement(t, "S65") }

func TestS76ABlockUndoesWhatCrossed(t *testing.T) { statement(t, "S76") }

func TestS77ABlockBeforeTheBoundaryUndoesNothing(t *testing.T) { statement(t, "S77") }

func TestS78AnUndoDeletesNothing(t *testing.T) { statement(t, "S78") }

func TestS79AnUndoChangesWorkingMemory(t *testing.T) { statement(t, "S79") }

func TestS80WorkingMemoryIsRebuilt(t *testing.T) { statement(t, "S80") }

func TestS81AMutationNamesTheActItCompensates(t *testing.T) { statement(t, "S81") }

func TestS82AnEvictionIsCompensatedByReingestion(t *testing.T) { statement(t, "S82") }

func TestS83ATombstoneIsARecord(t *testing.T) { statement(t, "S83") }

func TestS84TheEvictionQueueIsVisible(t *testing.T) { statement(t, "S84") }

func TestS85WhatNeverCrossedIsNotUndone(t *testing.T) { statement(t, "S85") }

func TestS86AnIrreversibleEffectHasNoInverse(t *testing.T) { statement(t, "S86") }

func TestS87ItsFailureIsItsOwners(t *testing.T) { statement(t, "S87") }

func TestS93ACascadeIsCutAtItsLimit(t *testing.T) { statement(t, "S93") }

func TestS95ConditionsOverTimeWithNegation(t *testing.T) { statement(t, "S95") }

func TestS97RetryAndCompensationAreTwo(t *testing.T) { statement(t, "S97") }

func TestS98ADuplicateIsOwedOnce(t *testing.T) { statement(t, "S98") }

func TestS99EveryConfirmedEffectIsUndoneLastFirst(t *testing.T) { statement(t, "S99") }

func TestS100CancelUndoesWhatHappened(t *testing.T) { statement(t, "S100") }

func TestS101AnUndoIsMarkedDone(t *testing.T) { statement(t, "S101") }

func TestS102AFailingUndoCallsItsOwner(t *testing.T) { statement(t, "S102") }

func TestS103TwoWaysToRegister(t *testing.T) { statement(t, "S103") }

func TestS104OnlyWhatIsConfirmedIsUndone(t *testing.T) { statement(t, "S104") }

func TestS105WhatIsStuckIsListed(t *testing.T) { statement(t, "S105") }

func TestS106AnOwnerResolvesByName(t *testing.T) { statement(t, "S106") }

func TestS107TheInverseIsNeverInferred(t *testing.T) { statement(t, "S107") }

func TestS108AnUndoIsNeverDoneTwice(t *testing.T) { statement(t, "S108") }

func TestS109WhatIsKnownReachesTheUndo(t *testing.T) { statement(t, "S109") }
