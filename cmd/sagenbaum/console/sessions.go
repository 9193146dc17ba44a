package console

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/host/console"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// asking is how a command asks a console.
type asking struct {
	url       string
	tokenFile string
	ca        string
	timeout   time.Duration
}

// tokenVariable holds the name and the token of an admin, with a space between.
const tokenVariable = "SAGENBAUM_CONSOLE_TOKEN"

func (a *asking) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.url, "url", "http://"+console.LocalName+":4280/", "`URL` of the console")
	f.StringVar(&a.tokenFile, "token-file", "",
		"`FILE` with the name and the token of an admin, which only its owner may read (env "+
			tokenVariable+" has the same; default sagenbaum-data/console/NAME.token, as the first "+
			"start makes it)")
	f.StringVar(&a.ca, "console-ca", "",
		"PEM `FILE` of the authority that signed the console's certificate (default: those that "+
			"this machine trusts)")
}

func sessions(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use: "sessions", Short: "List and end the sessions of a console, as one of its admins",
		Example: "  sagenbaum console sessions ls\n  sagenbaum console sessions end --user bo",
	}, newSessionsLs(s), newSessionsEnd(s))
}

func newSessionsLs(s *cli.Settings) *cobra.Command {
	var a asking
	cmd := cli.List[console.SessionView]{
		Command: &cobra.Command{
			Use: "ls", Short: "List who has signed in to a console, the latest first",
			Example: "  sagenbaum console sessions ls\n  sagenbaum console sessions ls --filter " +
				"'session.user == \"bo\"'",
		},
		Doing: "list sessions", Offline: true, Name: "session", Filter: `session.user == "bo"`,
		Ask: func(in cli.Listing) ([]console.SessionView, string, error) {
			a.timeout = s.Timeout
			list, err := a.list(in.Ctx)
			return list, "", err
		},
		Data: func(all []console.SessionView, _ string) any {
			return console.SessionList{Sessions: all}
		},
		Empty: "no one has signed in, on tenants of yours",
		Table: cli.Table{Head: []string{"ID", "USER", "SINCE", "LAST SEEN", "ENDS", "BY", "FROM", "MAY"},
			Elastic: []string{"MAY"}, Spare: []string{"FROM", "BY"}},
		Row: func(t *cli.Table, v console.SessionView) {
			now := time.Now()
			t.Add(v.ID, v.User, cli.Relative(v.SinceNs, now), cli.Relative(v.SeenNs, now),
				cli.Relative(v.EndsNs, now), v.By, v.From, v.May)
		},
	}.New(s)
	a.flags(cmd)
	return cmd
}

func newSessionsEnd(s *cli.Settings) *cobra.Command {
	var a asking
	var user string
	cmd := &cobra.Command{
		Use:   "end [ID]",
		Short: "End a session, or all of a user: they are over at once",
		Example: "  sagenbaum console sessions end 3uO1qk2Yw0bA\n" +
			"  sagenbaum console sessions end --user bo",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (user == "") {
				return cli.Fail(cli.ExitUsage, "sagenbaum console sessions ls",
					"name a session, or --user NAME")
			}
			a.timeout = s.Timeout
			ended, err := a.endAll(cmd.Context(), args, user)
			if err != nil {
				return cli.Failed("end sessions", err)
			}
			return s.Print(cmd, map[string]any{"ended": ended}, func() {
				fmt.Fprintf(cmd.OutOrStdout(), "%s ended\n", cli.CountOf(len(ended), "session"))
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&user, "user", "", "end all sessions of this `NAME`")
	return cmd
}

func (a *asking) endAll(ctx context.Context, ids []string, user string) ([]string, error) {
	if user != "" {
		list, err := a.list(ctx)
		if err != nil {
			return nil, err
		}
		for _, session := range list {
			if session.User == user {
				ids = append(ids, session.ID)
			}
		}
	}
	ended := []string{}
	for _, id := range ids {
		err := a.ask(ctx, http.MethodDelete, "api/sessions/"+url.PathEscape(id), nil)
		if err != nil {
			return ended, err
		}
		ended = append(ended, id)
	}
	return ended, nil
}

func (a *asking) list(ctx context.Context) ([]console.SessionView, error) {
	var answer console.SessionList
	err := a.ask(ctx, http.MethodGet, "api/sessions", &answer)
	return answer.Sessions, err
}

// answerMax bounds what is read of an answer, in bytes.
const answerMax = 4 << 20

// ask asks the console as the admin whose token is at hand.
func (a *asking) ask(ctx context.Context, method, path string, into any) error {
	name, token, err := a.token()
	if err != nil {
		return err
	}
	base, err := url.Parse(a.url)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return cli.Fail(cli.ExitUsage, "--url http://"+console.LocalName+":4280/",
			"%q is no address of a console", a.url)
	}
	if !strings.HasSuffix(base.Path, "/") {
		base.Path += "/"
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, method, base.String()+path, nil)
	if err != nil {
		return err
	}
	r.SetBasicAuth(name, token)
	answer, err := client.Do(r)
	if err != nil {
		return cli.Fail(cli.ExitNoServer, "sagenbaum serve, or --url URL", "no console answers at %s: %v",
			a.url, err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, answerMax))
	switch {
	case err != nil:
		return err
	case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		return cli.Fail(cli.ExitNotAllowed, "--token-file FILE of an admin", "%s",
			strings.TrimSpace(string(body)))
	case answer.StatusCode >= 300:
		return cli.Fail(cli.ExitFailed, "sagenbaum console sessions ls", "%s",
			strings.TrimSpace(string(body)))
	case into == nil:
		return nil
	}
	return json.Unmarshal(body, into)
}

func (a *asking) client() (*http.Client, error) {
	transport := &http.Transport{DialContext: console.DialContext}
	if a.ca != "" {
		pem, err := os.ReadFile(a.ca)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			return nil, cli.Fail(cli.ExitUsage, "--console-ca FILE in PEM",
				"%s has no certificate", a.ca)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, Timeout: max(a.timeout, time.Second),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// token is the name and the token of an admin.
func (a *asking) token() (name, token string, err error) {
	text, where := os.Getenv(tokenVariable), tokenVariable
	if a.tokenFile != "" || text == "" {
		where = a.tokenFile
		if where == "" {
			where = filepath.Join(filepath.Dir(usersFile), cli.DefaultActor()+".token")
		}
		data, err := cli.ReadSecret("--token-file FILE, or "+tokenVariable, where)
		if err != nil {
			return "", "", err
		}
		text = string(data)
	}
	words := strings.Fields(text)
	if len(words) != 2 {
		return "", "", cli.Fail(cli.ExitUsage, "a name, a space and a token",
			"%s has %d words", where, len(words))
	}
	return words[0], words[1], nil
}
