package access

import (
	"encoding/json"
	"maps"
	"os"
	"sync"
	"time"
)

// usedEvery is how exactly it is known when a key was used: no use within it is noted twice, and
// the file is not written more often.
const usedEvery = time.Minute

// uses are when keys were last used, beside the file of users: nothing is decided by them, so a
// file that is lost or damaged is one that knows nothing.
type uses struct {
	mu     sync.Mutex
	at     map[string]time.Time // by key
	tokens map[string][]Token   // by the key that has signed them; at most tokensMax of each
	dirty  bool                 // the file lacks some of them
	saved  time.Time            // when it was written last
}

// usedFile is what the file has.
type usedFile struct {
	Used   map[string]time.Time `json:"used"`
	Tokens map[string][]Token   `json:"tokens,omitempty"`
}

func (d *Directory) usedPath() string { return d.path + ".used" }

func (s *uses) read(path string) {
	var file usedFile
	if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &file) == nil {
		s.at, s.tokens = file.Used, file.Tokens
	}
}

// note says that a key was used. A use that is older than what is known, or hardly younger, is no
// news.
func (s *uses) note(key string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.at[key]; ok && at.Sub(was) < usedEvery {
		return
	}
	if s.at == nil {
		s.at = map[string]time.Time{}
	}
	s.at[key], s.dirty = at.UTC().Truncate(time.Second), true
}

// NoteUse says that a user has used its key, to be told by LastUses and kept by SaveUses. It costs
// no write.
func (d *Directory) NoteUse(key string, at time.Time) {
	if _, known := d.OfKey(key); known {
		d.used.note(key, at)
	}
}

// LastUses is when the users have last used their keys, by ID, to the minute; who is missing was
// not seen.
func (d *Directory) LastUses() map[string]time.Time {
	users := d.Users()
	d.used.mu.Lock()
	defer d.used.mu.Unlock()
	last := map[string]time.Time{}
	for _, u := range users {
		if at, ok := d.used.at[u.Key]; ok {
			last[u.ID()] = at
		}
	}
	return last
}

// SaveUses writes what was noted since it was written last, at most once a minute unless now is
// zero. Keys of no user are forgotten then.
func (d *Directory) SaveUses(now time.Time) error {
	users := d.Users()
	text, err := d.used.text(users, now)
	if text == nil || err != nil {
		return err
	}
	// It is not synced: what a machine that goes down loses of it is the last minute.
	return replaceFile(d.usedPath(), text, func(*os.File) error { return nil })
}

// text is what the file shall have; nil: it has it, or was written a moment ago. A write that
// fails is tried again with the next use.
func (s *uses) text(users []User, now time.Time) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dirty || !now.IsZero() && now.Sub(s.saved).Abs() < usedEvery {
		return nil, nil
	}
	known := make(map[string]bool, len(users))
	for _, u := range users {
		known[u.Key] = true
	}
	maps.DeleteFunc(s.at, func(key string, _ time.Time) bool { return !known[key] })
	maps.DeleteFunc(s.tokens, func(key string, _ []Token) bool { return !known[key] })
	s.dirty, s.saved = false, now
	text, err := json.Marshal(usedFile{s.at, s.tokens})
	return append(text, '\n'), err
}
