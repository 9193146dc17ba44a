package proof

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/host/webclient"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Witness cosigns checkpoints, by the C2SP tlog-witness protocol: it has seen
// each tree grow from the one before, so that no one can show two histories without
// it. The zero Witness is none.
type Witness struct {
	URL string // submission prefix; https, or http to this machine
	Key string // verifier key of its cosignatures, Ed25519 or cosignature/v1
}

// CheckWitness checks a witness. The error is a *ledger.Refused.
func CheckWitness(w Witness) error {
	if w == (Witness{}) {
		return nil
	}
	u, err := url.Parse(w.URL)
	switch {
	case err != nil || u.Hostname() == "":
		return ledger.Refuse("Witness.URL", "no URL", "https://HOST/PATH")
	case u.Scheme != "https" && (u.Scheme != "http" || !webclient.OnThisMachine(u.Hostname())):
		return ledger.Refuse("Witness.URL", fmt.Sprintf("the scheme %q", u.Scheme),
			"https; http is for this machine only")
	}
	if _, err := cosign.NewVerifierForCosignatureV1(w.Key); err != nil {
		return ledger.Refuse("Witness.Key", "no verifier key",
			"NAME+HASH+KEY, as the witness publishes it")
	}
	return nil
}

// witnessing asks the witness of a tenant for its cosignature on the last checkpoint,
// beside all else: one that is away delays nothing.
type witnessing struct {
	Witness
	verifier note.Verifier
	client   *http.Client
	last     chan signed // buffered 1: the checkpoint to be cosigned; a later one takes its place
	signer   *Signer     // for what it shows, and its file
	retry    time.Duration
	log      *slog.Logger
}

// Bounds of a question to a witness.
const (
	witnessTimeout   = 10 * time.Second
	witnessTries     = 3        // of one checkpoint, where it names the size that it has seen
	witnessAnswerMax = 64 << 10 // bytes of its answer
)

// errDenied says that a witness has seen another history.
var errDenied = errors.New("the witness has seen another ledger")

func newWitnessing(cfg Config, s *Signer) *witnessing {
	w := cfg.Witness
	if w == (Witness{}) {
		return nil
	}
	verifier, err := cosign.NewVerifierForCosignatureV1(w.Key)
	if err != nil {
		panic("proof: a witness that was checked: " + err.Error())
	}
	s.shown.Witness = verifier.Name()
	return &witnessing{Witness: w, verifier: verifier, client: cfg.Client,
		last: make(chan signed, 1), signer: s, retry: cfg.Times.WitnessRetry, log: cfg.Log}
}

// ask leaves a checkpoint to be cosigned.
func (w *witnessing) ask(r signed) {
	if w == nil {
		return
	}
	select {
	case <-w.last:
	default:
	}
	w.last <- r
}

// run asks until ctx ends. A checkpoint that was not cosigned is tried again until a
// later one takes its place.
func (w *witnessing) run(ctx context.Context) {
	var r signed
	again := false
	for {
		wait, stop := ctx, context.CancelFunc(func() {})
		if again {
			wait, stop = context.WithTimeout(ctx, w.retry)
		}
		select {
		case <-wait.Done():
		case r = <-w.last:
		}
		stop()
		if ctx.Err() != nil {
			return
		}
		err := w.cosigned(ctx, r)
		if ctx.Err() != nil {
			return
		}
		w.note(r, err)
		again = err != nil
	}
}

// note shows what became of a question.
func (w *witnessing) note(r signed, err error) {
	s := w.signer
	s.mu.Lock()
	was := s.shown.Away
	if s.shown.Away, s.shown.WitnessAlarm = "", errors.Is(err, errDenied); err != nil {
		s.shown.Away = err.Error()
	} else {
		s.shown.Cosigned = max(s.shown.Cosigned, r.checkpoint.Size)
	}
	now := s.shown.Away
	s.mu.Unlock()
	switch {
	case now == was:
	case errors.Is(err, errDenied):
		w.log.Error("ALARM: the witness says that the ledger is not the one that it has seen", "witness",
			w.verifier.Name(), "size", r.checkpoint.Size, "error", err)
	case err != nil:
		w.log.Warn("the checkpoint is not cosigned; the witness is asked again", "witness",
			w.verifier.Name(), "size", r.checkpoint.Size, "error", err)
	default:
		w.log.Info("the witness cosigns again", "witness", w.verifier.Name(), "size", r.checkpoint.Size)
	}
}

// cosigned asks for the cosignature of a checkpoint and adds it to the file. The
// witness says itself which of our trees it has seen last.
func (w *witnessing) cosigned(ctx context.Context, r signed) error {
	w.signer.mu.Lock()
	old := min(w.signer.shown.Cosigned, r.checkpoint.Size)
	w.signer.mu.Unlock()
	for range witnessTries {
		lines, seen, err := w.submit(ctx, r, old)
		if err != nil {
			return err
		}
		if lines != "" {
			return w.add(r, lines)
		}
		switch {
		case seen == old:
			return fmt.Errorf("%w: of the same %d records it has another tree", errDenied, seen)
		case seen > r.tree.Files.Size():
			return fmt.Errorf("%w: it has cosigned %d records, and the ledger has %d", errDenied, seen,
				r.tree.Files.Size())
		case seen > r.checkpoint.Size:
			return nil // a later one of ours
		}
		old = seen
	}
	return errors.New("the witness names another size each time")
}

// submit is one add-checkpoint. It returns signature lines, or the size that the
// witness has seen last.
func (w *witnessing) submit(ctx context.Context, r signed,
	old uint64) (lines string, seen uint64, err error) {
	proof, err := r.tree.Prover().Consistency(old, r.checkpoint.Size)
	if err != nil {
		return "", 0, err
	}
	var body bytes.Buffer
	fmt.Fprintf(&body, "old %d\n", old)
	for _, h := range proof {
		body.WriteString(base64.StdEncoding.EncodeToString(h[:]) + "\n")
	}
	body.WriteString("\n" + string(r.note))
	ctx, cancel := context.WithTimeout(ctx, witnessTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(w.URL, "/")+
		"/add-checkpoint", &body)
	if err != nil {
		return "", 0, err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return "", 0, fmt.Errorf("the witness is away: %w", webclient.WithoutURL(err))
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, witnessAnswerMax))
	if err != nil {
		return "", 0, fmt.Errorf("the witness broke off: %w", err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		if len(text) == 0 {
			return "", 0, errors.New("the witness answers with no signature")
		}
		return string(text), 0, nil
	case http.StatusConflict:
		if seen, err = strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 10, 63); err != nil {
			return "", 0, errors.New("the witness names no size in its conflict")
		}
		return "", seen, nil
	case http.StatusUnprocessableEntity:
		return "", 0, fmt.Errorf("%w: it refuses the proof that %d records grew to %d", errDenied, old,
			r.checkpoint.Size)
	default:
		return "", 0, fmt.Errorf("the witness answers %s", response.Status)
	}
}

// add adds the cosignatures that verify to the checkpoint's file, if that is still
// the one that was asked about.
func (w *witnessing) add(r signed, lines string) error {
	n, err := note.Open([]byte(string(r.note)+lines), note.VerifierList(w.verifier))
	if err != nil {
		return fmt.Errorf("the witness answers with no cosignature that verifies: %w", err)
	}
	w.signer.file.Lock()
	defer w.signer.file.Unlock()
	files := r.tree.Files
	_, text, err := files.ReadCheckpoint()
	if err != nil || !bytes.HasPrefix(text, r.note) {
		return err // a later one is there
	}
	for _, s := range n.Sigs {
		if line := fmt.Sprintf("— %s %s\n", s.Name, s.Base64); !bytes.Contains(text, []byte(line)) {
			text = append(text, line...)
		}
	}
	return store.WriteSynced(files.Path(tiles.CheckpointName), text)
}
