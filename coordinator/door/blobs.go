package door

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/blob"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// verbBlob is what those may do who store and read blobs over HTTP, as the table of roles has it.
const verbBlob = "plan.blob"

// typeUnsaid is the media type of what no one has said the type of.
const typeUnsaid = "application/octet-stream"

// putBlob stores the body as a blob of a plan. Its SHA-256 is in the path: an upload that was cut
// off, or changed on its way, is refused.
func (w *Web) putBlob(out http.ResponseWriter, r *http.Request) {
	w.withBlobs(out, r, func(r *http.Request, blobs *blob.Client) error {
		kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil {
			return ledger.Refuse("content_type", fmt.Sprintf("%q", clip(r.Header.Get("Content-Type"))),
				"the media type of the value, such as "+typeUnsaid)
		}
		if r.ContentLength > blob.Max {
			return ledger.Refuse("blob.bytes", fmt.Sprintf("%d bytes", r.ContentLength),
				fmt.Sprintf("at most %d bytes", int64(blob.Max)))
		}
		control := http.NewResponseController(out)
		from := &upload{r.Body, control, pace{step: w.spare, spare: w.spare}}
		ref, err := blobs.Put(r.Context(), blob.Value{Plan: r.PathValue("plan"), From: from, Type: kind,
			SHA256: r.PathValue("digest")})
		if err != nil {
			return err
		}
		_ = control.SetReadDeadline(time.Time{})
		out.Header().Del("Connection")
		out.Header().Set("Content-Type", "application/json")
		text, err := json.Marshal(ref)
		if err != nil {
			return err
		}
		_, _ = out.Write(append(text, '\n'))
		return nil
	})
}

// pace is the time that the other side of a blob may take: what it needs at blobRate, and spare
// beside that; and step for one read or write, since what moved may be in a buffer. What the door
// takes itself does not count.
type pace struct {
	step, spare time.Duration
	moved       int64 // bytes
}

// by is when the next of them must have moved.
func (p *pace) by() time.Time {
	return time.Now().Add(min(p.step, p.spare+time.Duration(p.moved)*time.Second/blobRate))
}

// took counts what moved since a time.
func (p *pace) took(since time.Time, n int) {
	p.moved += int64(n)
	p.spare -= time.Since(since)
}

// upload is a body that comes at a pace.
type upload struct {
	body    io.Reader
	control *http.ResponseController
	pace    pace
}

// Read reads what has come. The error is an *Error where it comes too slowly, or no more.
func (u *upload) Read(into []byte) (int, error) {
	_ = u.control.SetReadDeadline(u.pace.by())
	began := time.Now()
	n, err := u.body.Read(into)
	u.pace.took(began, n)
	if err != nil && err != io.EOF {
		e := unavailable("it did not come: "+err.Error(), sameAgain, StoredNothing)
		e.Field = "body"
		return n, e
	}
	return n, err
}

// download is an answer that is taken at a pace.
type download struct {
	out     io.Writer
	control *http.ResponseController
	pace    pace
}

// Write sends what the other side takes.
func (d *download) Write(from []byte) (int, error) {
	_ = d.control.SetWriteDeadline(d.pace.by())
	began := time.Now()
	n, err := d.out.Write(from)
	d.pace.took(began, n)
	return n, err
}

// getBlob returns the value of a blob, whose digest is that of its reference.
func (w *Web) getBlob(out http.ResponseWriter, r *http.Request) {
	w.withBlobs(out, r, func(r *http.Request, blobs *blob.Client) error {
		ref := blob.Ref{Plan: r.PathValue("plan"), Digest: r.PathValue("digest")}
		about, err := blobs.About(r.Context(), ref)
		if err != nil {
			return err
		}
		ref.Bytes = about.Bytes
		h := out.Header()
		h.Set("Content-Type", typeUnsaid)
		h.Set("Content-Length", strconv.FormatInt(about.Bytes, 10))
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "sandbox")
		h.Set("Cache-Control", "no-store")
		control := http.NewResponseController(out)
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
		to := &download{out, control, pace{step: w.spare, spare: w.spare}}
		if err := blobs.Copy(r.Context(), to, ref); err != nil {
			w.cfg.Logger.Warn("a blob was not sent whole", "plan", ref.Plan, "error", err)
			panic(http.ErrAbortHandler) // or it would look like a shorter value
		}
		return nil
	})
}

// withBlobs lets a user that may do it work with the blobs of its plans.
func (w *Web) withBlobs(out http.ResponseWriter, r *http.Request,
	work func(*http.Request, *blob.Client) error) {
	who := Caller{Tenant: r.PathValue("tenant"), Name: r.PathValue("name")}
	changed := w.changed()
	d, err := w.admit(out, r, who, verbBlob)
	if err == nil {
		guarded, refused, stop := w.guarded(r, who, verbBlob, changed)
		defer stop()
		err = d.during(who, func() error {
			if err := d.blobs.enter(who); err != nil {
				return err
			}
			defer d.blobs.leave(who)
			t, err := d.tenant(who.Tenant)
			if err != nil {
				return err
			}
			blobs, err := blob.New(blob.Config{Conn: t.conn, Tenant: who.Tenant, Role: blob.Agent,
				Name: who.Name})
			if err != nil {
				return err
			}
			return work(guarded, blobs)
		})
		if e := refused(); e != nil {
			err = e
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, blob.ErrGone):
		refuse(out, &Error{Status: http.StatusNotFound, Code: "not_found", Field: "blob",
			Problem: err.Error(), Want: "a blob that is stored", Stored: StoredNothing})
	case errors.Is(err, blob.ErrNoPlan):
		refuse(out, explain(ledger.Refuse("plan", err.Error(), "a plan that is open")))
	default:
		refuse(out, explain(err))
	}
}
