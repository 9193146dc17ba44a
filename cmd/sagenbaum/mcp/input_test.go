package mcp

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// TestWhatAClientSaysIsHeardBeforeItIsRead, all of it, and that it has gone; what it says is read
// in full afterwards.
func TestWhatAClientSaysIsHeardBeforeItIsRead(t *testing.T) {
	said := bytes.Repeat([]byte("0123456789abcdef"), 4096) // less than inputMax
	gone := make(chan struct{})
	in := hear(iotest.OneByteReader(bytes.NewReader(said)), func() { close(gone) })
	<-gone
	if got, err := io.ReadAll(in); err != nil || !bytes.Equal(got, said) {
		t.Errorf("%d bytes are read of %d: %v", len(got), len(said), err)
	}
}

// TestAClientThatSaysMoreThanIsHeldWaits until that is read.
func TestAClientThatSaysMoreThanIsHeldWaits(t *testing.T) {
	from, to := io.Pipe()
	gone := make(chan struct{})
	in := hear(from, func() { close(gone) })
	said := strings.Repeat("x", 3*inputMax)
	wrote := make(chan error, 1)
	go func() {
		_, err := io.WriteString(to, said)
		wrote <- errors.Join(err, to.Close())
	}()
	got := make([]byte, 0, len(said))
	for chunk := make([]byte, 8<<10); len(got) < len(said); {
		if held := in.holds(); held > inputMax+32<<10 {
			t.Fatalf("%d bytes are held", held)
		}
		n, err := in.Read(chunk)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, chunk[:n]...)
	}
	if err := <-wrote; err != nil || string(got) != said {
		t.Errorf("%d bytes are read of %d: %v", len(got), len(said), err)
	}
	if _, err := in.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the last: %v", err)
	}
	<-gone
}

// TestServersAreStartedForAClientThatIsThere, and for one that has gone for 30 s more.
func TestServersAreStartedForAClientThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		in, starting := hearWhile(t.Context(), from)
		<-time.After(time.Hour) // of the bubble: no one waits
		if err := starting.Err(); err != nil {
			t.Errorf("with its client there, the start ends with %v", err)
		}
		if _, err := io.WriteString(to, "x"); err != nil {
			t.Fatal(err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		went := time.Now()
		<-starting.Done()
		if took := time.Since(went); took != 30*time.Second {
			t.Errorf("the start ends %s after the client has gone", took)
		}
		if said, err := io.ReadAll(in); err != nil || string(said) != "x" {
			t.Errorf("it has said %q, %v", said, err)
		}
	})
}

// TestAnInputThatIsClosedEndsARead, as the SDK wants it of a file.
func TestAnInputThatIsClosedEndsARead(t *testing.T) {
	from, _ := io.Pipe()
	gone := make(chan struct{})
	in := hear(from, func() { close(gone) })
	ended := make(chan error, 1)
	go func() {
		_, err := in.Read(make([]byte, 1))
		ended <- err
	}()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the read ends with %v", err)
	}
	<-gone
}

// holds is how many bytes wait to be read.
func (i *input) holds() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.held.Len()
}
