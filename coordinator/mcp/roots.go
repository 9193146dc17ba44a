package mcp

//lint:file-ignore SA1019 the protocol has deprecated roots; who has them keeps them

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// A client may say in which places its servers are to work: its roots. A server may work there and
// nowhere else then, whatever its command says, so a call is recorded with the roots that were in
// force, and its undo works in the same ones, in whichever process.
//
// What a record says is not believed for that: who may append to the ledger would have a worker
// write anywhere. The gateway keeps the roots that its client had in the folder of states, and an
// undo works in those only.

// rootsMember is the member of a recorded input that has the URIs of the roots.
const rootsMember = "sagenbaum/roots"

// roots are those of a client. They do not change; nil: it has none, and a server works where its
// command says.
type roots struct {
	Roots   []*sdk.Root `json:"roots"`             // as the client has said it
	Folders []string    `json:"folders,omitempty"` // those of them that were there, resolved
}

// uris are what a record says of them.
func (r *roots) uris() []string {
	list := []string{}
	for _, root := range r.Roots {
		list = append(list, root.URI)
	}
	return list
}

func (r *roots) is(other *roots) bool {
	if r == nil || other == nil {
		return r == other
	}
	return slices.Equal(r.uris(), other.uris()) && slices.Equal(r.Folders, other.Folders)
}

// gone are the folders that are not there any more, or are links to others by now.
func (r *roots) gone() (list []string) {
	for _, path := range r.Folders {
		if resolved, ok := folder(path); !ok || resolved != path {
			list = append(list, path)
		}
	}
	return list
}

// rootFolder is the folder that a root is, as servers read it: a file's URI, or a path.
func rootFolder(uri string) (string, bool) {
	if rest, ok := strings.CutPrefix(uri, "file://"); ok {
		parsed, err := url.Parse(uri)
		if err != nil || (parsed.Host != "" && parsed.Host != "localhost") || rest == "" {
			return "", false
		}
		uri = filepath.FromSlash(parsed.Path)
	}
	return folder(uri)
}

// pinned reports whether the configuration says where the server works, whatever clients say.
func (s *Server) pinned() bool { return len(s.config.Roots) > 0 }

// rooted are the roots that a client has said, as far as they mean something to this server.
// Errors: *ledger.Refused.
func (s *Server) rooted(list []*sdk.Root) (*roots, error) {
	if len(list) == 0 || s.pinned() || s.pack.Roots == rootsIgnored || s.remote() {
		return nil, nil
	}
	r, size := &roots{Roots: list}, 0
	for _, root := range list {
		size += len(root.URI)
		if path, ok := rootFolder(root.URI); ok {
			r.Folders = append(r.Folders, path)
		}
	}
	if len(list) > rootsMax || size > rootsSize {
		return nil, ledger.Refuse("roots", fmt.Sprintf("%d roots of %d bytes", len(list), size),
			fmt.Sprintf("at most %d of %d bytes: a record has them", rootsMax, rootsSize))
	}
	if s.pack.Files && len(r.Folders) == 0 {
		s.logger.Warn("no root of the client is a folder that is there", "server", s.config.Name,
			"roots", r.uris())
		return nil, nil // such a server keeps those of its command
	}
	return r, nil
}

// take takes the lock of the server, and of the folders that it and more say: other servers may
// work in these, too.
func (s *Server) take(ctx context.Context, more ...string) (release func(), err error) {
	folders := slices.Clone(more)
	if r := s.roots.Load(); r != nil {
		folders = append(folders, r.Folders...)
	}
	for _, named := range slices.Concat(s.config.Roots, s.config.Args) {
		if at, ok := folder(named); ok {
			folders = append(folders, at)
		}
	}
	return s.guard.take(ctx, folders...)
}

// claim is a folder that is locked: the whole of it, or one in it is.
type claim struct {
	path  string
	whole bool
}

// claims are what a lock of folders takes, in the order in which all take them: each whole, and
// those above it for what is in them.
func claims(folders []string) (list []claim) {
	whole := map[string]bool{}
	for _, path := range folders {
		whole[path] = true
		for above := filepath.Dir(path); above != path; path, above = above, filepath.Dir(above) {
			if _, there := whole[above]; !there {
				whole[above] = false
			}
		}
	}
	for _, path := range sortedKeys(whole) {
		list = append(list, claim{path, whole[path]})
	}
	return list
}

// folderLock is the file of the lock of a folder.
func folderLock(path string) string {
	sum := sha256.Sum256([]byte(path))
	return "folder-" + hex.EncodeToString(sum[:8]) + ".lock"
}

// move has the server work in the roots of its client from now on, once no call is under way.
// Errors: that it does not.
func (s *Server) move(ctx context.Context, list []*sdk.Root) error {
	want, err := s.rooted(list)
	if err != nil || want.is(s.roots.Load()) {
		return err
	}
	release, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := s.grant(want); err != nil {
		return err
	}
	had := s.roots.Swap(want)
	s.files, s.lost = s.filesIn(want)
	if want == nil { // no server is known to forget what it was told before
		s.end()
		return nil
	}
	s.mu.Lock()
	client, session := s.client, s.session
	s.mu.Unlock()
	if session == nil {
		return nil // it is told when it starts
	}
	client.AddRoots(want.Roots...) // which notifies the server; it asks, and gets want
	if had != nil {
		client.RemoveRoots(slices.DeleteFunc(had.uris(), func(uri string) bool {
			return slices.Contains(want.uris(), uri)
		})...)
	}
	if err := s.arrived(ctx, session, want); err != nil {
		s.files, s.lost = nil, err
		return err
	}
	return nil
}

// filesIn are the files of the roots, else of the command; nil with an error: there are none.
func (s *Server) filesIn(r *roots) (*files.Files, error) {
	if !s.pack.Files {
		return nil, nil
	}
	folders, gone := s.config.Roots, []string(nil)
	switch {
	case r != nil:
		gone = r.gone()
		folders = slices.DeleteFunc(slices.Clone(r.Folders), func(path string) bool {
			return slices.Contains(gone, path)
		})
	case !s.pinned():
		for _, argument := range s.config.Args {
			if resolved, ok := folder(argument); ok {
				folders = append(folders, resolved)
			}
		}
		if len(folders) == 0 && s.remote() {
			return nil, ledger.Refuse("servers."+s.config.Name+".roots", "missing at a url",
				"the folders of this machine that are the files of the server; it need not have any here")
		}
		if len(folders) == 0 {
			return nil, ledger.Refuse("servers."+s.config.Name+".roots", "missing",
				"a folder among its arguments, or roots of its client")
		}
	}
	return files.New(files.Config{Roots: folders, Gone: gone, State: s.config.State})
}

// arrived waits until a server works in the roots that it was told, as far as it can be asked.
func (s *Server) arrived(ctx context.Context, session *sdk.ClientSession, want *roots) error {
	if s.pack.Folders == "" || want == nil {
		return nil
	}
	c, err := calling(s.pack.Folders, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, rootsWait)
	defer cancel()
	wanted := slices.Sorted(slices.Values(want.Folders))
	for {
		result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: c.tool, Meta: asMeta(c.params)})
		if err != nil {
			return fmt.Errorf("cannot tell in which folders the server works: %w", err)
		}
		var there []string
		for line := range strings.Lines(text(result)) {
			if line = strings.TrimRight(line, "\r\n"); filepath.IsAbs(line) {
				there = append(there, line)
			}
		}
		if slices.Equal(slices.Compact(slices.Sorted(slices.Values(there))), slices.Compact(wanted)) {
			return nil
		}
		select {
		case <-time.After(startPause / 10):
		case <-ctx.Done():
			return fmt.Errorf("the server works in %s, and not in the roots of its client, %s",
				strings.Join(there, ", "), strings.Join(wanted, ", "))
		}
	}
}

// newClient is the client of the server, which has the roots that are in force.
func (s *Server) newClient() *sdk.Client {
	options := &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{
		RootsV2: &sdk.RootCapabilities{ListChanged: true}}}
	if s.front != nil {
		s.front.listen(s, options)
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "sagenbaum", Version: version}, options)
	client.AddReceivingMiddleware(s.answerRoots)
	if r := s.roots.Load(); r != nil {
		client.AddRoots(r.Roots...)
	}
	return client
}

// answerRoots answers what a server asks for the roots: in the order of the client, which the SDK
// does not keep.
func (s *Server) answerRoots(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		r := s.roots.Load()
		if _, asks := req.GetParams().(*sdk.ListRootsParams); asks && r != nil {
			return &sdk.ListRootsResult{Roots: r.Roots}, nil
		}
		return next(ctx, method, req)
	}
}

const grantSuffix = ".roots.json"

// grantFile is where a gateway keeps the roots that its client had.
func (s *Server) grantFile(uris []string) string {
	sum := sha256.Sum256([]byte(strings.Join(uris, "\x00")))
	return filepath.Join(s.config.State, s.instance+"."+hex.EncodeToString(sum[:8])+grantSuffix)
}

// grant keeps roots for those who undo what is done in them, for as long as images are kept.
func (s *Server) grant(r *roots) error {
	if r == nil {
		return nil
	}
	path, now := s.grantFile(r.uris()), time.Now()
	if kept, err := readGrant(path); err == nil && kept.is(r) && os.Chtimes(path, now, now) == nil {
		return nil
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot keep the roots of a client: %w", err)
	}
	if err := replaceFile(path, raw); err != nil {
		return fmt.Errorf("cannot keep the roots of a client: %w", err)
	}
	return nil
}

// replaceFile puts a file that only its owner may read in the place of another one: whoever reads
// it, also after a crash, reads one of them whole.
func replaceFile(path string, raw []byte) error {
	draft, err := os.CreateTemp(filepath.Dir(path), draftPrefix) // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name()) // it fails once the draft has its name
	_, err = draft.Write(raw)
	if err = errors.Join(err, draft.Sync(), draft.Close()); err == nil {
		err = os.Rename(draft.Name(), path)
	}
	return err
}

// draftPrefix begins the names of files that have yet to get theirs.
const draftPrefix = "draft-"

func readGrant(path string) (*roots, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(roots)
	return r, json.Unmarshal(raw, r)
}

// pruneGrants removes roots in which nothing was done for so long that nothing is undone in them.
func (s *Server) pruneGrants() error {
	paths, err := filepath.Glob(filepath.Join(s.config.State, "*"+grantSuffix))
	for _, path := range paths {
		if info, failed := os.Stat(path); failed == nil && time.Since(info.ModTime()) > KeptFor {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// withRoots is an input as it is recorded, with the roots that the call is made in.
func withRoots(input json.RawMessage, r *roots) (json.RawMessage, error) {
	if len(memberOf(input, rootsMember)) > 0 {
		return nil, ledger.Refuse("arguments."+rootsMember, "given", "an argument of another name")
	}
	if r == nil {
		return input, nil
	}
	uris, err := encode(r.uris())
	if err != nil {
		return nil, err
	}
	return withValue(input, rootsMember, uris)
}

// withoutRoots is the input that was recorded, and the URIs of the roots that it was recorded with.
func withoutRoots(input json.RawMessage) (json.RawMessage, []string, error) {
	said := memberOf(input, rootsMember)
	if len(said) == 0 {
		return input, nil, nil
	}
	var uris []string
	if err := json.Unmarshal(said, &uris); err != nil {
		return nil, nil, ledger.Refuse("input."+rootsMember, err.Error(), "a list of URIs")
	}
	input, err := withoutMembers(input, func(name string) bool { return name == rootsMember })
	return input, uris, err
}

// in is the server in the roots that a call was made in: itself, or one that is started when the
// undo calls a tool. leave ends what was started. Errors: *stopped.
func (s *Server) in(uris []string, recipe Recipe) (at *Server, leave func(), err error) {
	stay := func() {}
	if s.pinned() || s.pack.Roots == rootsIgnored {
		return s, stay, nil
	}
	var r *roots
	var gone []string
	if len(uris) > 0 {
		if r, err = readGrant(s.grantFile(uris)); err != nil || !slices.Equal(r.uris(), uris) {
			return nil, nil, &stopped{"roots", fmt.Sprintf("no client of this server is known to have had "+
				"the roots %s on this machine, so its undo does not work there; a worker with --root does",
				strings.Join(uris, ", "))}
		}
		gone = r.gone()
	}
	if r.is(s.roots.Load()) && len(gone) == 0 {
		return s, stay, nil
	}
	if len(gone) > 0 && (recipe.callsTools() || len(gone) == len(r.Folders)) {
		return nil, nil, &stopped{"roots", strings.Join(gone, ", ") + " is no longer there: it was a " +
			"root of the client, in which the call was made"}
	}
	at = &Server{config: s.config, instance: s.instance, packs: s.packs, x: s.x, logger: s.logger,
		guard: s.guard, calls: &calls{}, pack: s.pack, version: s.version}
	at.roots.Store(r)
	if at.files, err = at.filesIn(r); err != nil {
		return nil, nil, &stopped{"roots", err.Error()}
	}
	return at, at.end, nil
}

func (r Recipe) callsTools() bool {
	return r.Probe != nil && r.Probe.Tool != "" ||
		slices.ContainsFunc(r.Undo, func(step Step) bool { return step.Tool != "" })
}

// errMoved says that the client has other roots than when it made a call.
var errMoved = errors.New("the roots of its client have changed meanwhile: call again")

// rooting is what a gateway knows of the roots of its clients.
type rooting struct {
	turn   chan struct{} // one element while they are looked at
	said   map[*sdk.ServerSession][]*sdk.Root
	holder *sdk.ServerSession // whose roots the servers have

	stale map[*sdk.ServerSession]bool // guarded by the gateway
}

func newRooting() *rooting {
	return &rooting{turn: make(chan struct{}, 1), said: map[*sdk.ServerSession][]*sdk.Root{},
		stale: map[*sdk.ServerSession]bool{}}
}

// rootsChanged notes that a client has other roots: they are asked for before its next call.
func (g *Gateway) rootsChanged(_ context.Context, req *sdk.RootsListChangedRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rooting.stale[req.Session] = true
}

// follow has servers work in the roots of a client that calls them. Clients over HTTP share their
// servers, and may be on other machines: theirs count for nothing. Errors: that another client has
// other roots, or that a server does not work in them.
func (g *Gateway) follow(ctx context.Context, session *sdk.ServerSession,
	servers ...*Server) error {
	if g.remote.Load() {
		return nil
	}
	r := g.rooting
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.turn }()
	there := map[*sdk.ServerSession]bool{}
	for _, s := range g.clients() {
		there[s] = true
	}
	for s := range r.said {
		if !there[s] {
			delete(r.said, s)
		}
	}
	list, err := g.rootsOf(ctx, session)
	if err != nil {
		return err
	}
	if r.holder != session {
		other := r.said[r.holder]
		if there[r.holder] && !(&roots{Roots: list}).is(&roots{Roots: other}) {
			return fmt.Errorf("the servers of this gateway work in the roots of another client, %s: a "+
				"gateway of its own works in those of this one",
				strings.Join((&roots{Roots: other}).uris(), ", "))
		}
		r.holder = session
	}
	for _, s := range servers {
		if err := s.move(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

// rootsOf are the roots of a client; one that does not say them has none, or those of before. It is
// called with the turn.
func (g *Gateway) rootsOf(ctx context.Context, session *sdk.ServerSession) ([]*sdk.Root, error) {
	g.mu.Lock()
	stale := g.rooting.stale[session]
	delete(g.rooting.stale, session)
	g.mu.Unlock()
	list, known := g.rooting.said[session]
	if known && !stale {
		return list, nil
	}
	if capabilities(session).RootsV2 != nil {
		late, cancel := context.WithTimeout(ctx, rootsWait)
		defer cancel()
		answer, err := session.ListRoots(late, nil)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			g.logger.Warn("a client does not say its roots", "error", err)
		default:
			list = answer.Roots
		}
	}
	g.rooting.said[session] = list
	return list, nil
}
