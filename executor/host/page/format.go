package page

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Formats of what is posted to a webhook: the page itself, or what two chat tools
// take. They are written before the scheme of the URL, as in slack+https://...
const (
	formatPage  = ""
	formatSlack = "slack"
	formatTeams = "teams"
)

// splitWebhook takes the format off a webhook.
func splitWebhook(webhook string) (format, url string) {
	for _, format := range [...]string{formatSlack, formatTeams} {
		if rest, ok := strings.CutPrefix(webhook, format+"+"); ok {
			return format, rest
		}
	}
	return formatPage, webhook
}

// bodyOf is what is posted for a page.
func bodyOf(format string, page api.Page) []byte {
	var body any
	switch format {
	case formatPage:
		body = page
	case formatSlack:
		body = slackMessage(page)
	case formatTeams:
		body = teamsMessage(page)
	default:
		panic("page: unknown format of a webhook: " + format)
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		panic("page: cannot encode a page: " + err.Error())
	}
	return []byte(strings.TrimSuffix(out.String(), "\n"))
}

// chatTextMax bounds, in characters, a text of a plan that a chat message shows; the
// tools refuse messages that are too long.
const chatTextMax = 600

// chatFacts say a page to people: a title, what is to be known, the command that
// helps.
func chatFacts(page api.Page) (title string, facts [][2]string, command string) {
	tenant := ""
	if page.Tenant != "default" {
		tenant = " --tenant " + page.Tenant
	}
	switch page.Kind {
	case api.PageQuarantined:
		title, command = "An undo waits for its owner", "sagenbaum quarantine show "+page.Plan+" "+
			api.ActionArg(page.Action, 0)+tenant
	case api.PageCommitWaits:
		title, command = "A commit waits for its owner", "sagenbaum quarantine show "+page.Plan+" "+
			api.ActionArg(page.Action, 0)+tenant
	case api.PageActClaimed:
		title, command = "A refused record claims an act", "sagenbaum plan show "+page.Plan+tenant
	case api.PageWindowClosing:
		title, command = "An undo window is about to close", "sagenbaum plan preview "+page.Plan+tenant
	case api.PageCascadeCut:
		title, command = "A cascade was cut and waits for its owner", "sagenbaum plan why "+
			page.Plan+tenant
	case api.PageVerdictWanted:
		title, command = "An action waits for a verdict", "sagenbaum review show "+page.Plan+" "+
			api.ActionArg(page.Action, 0)+tenant
	case api.PageStuckWorker:
		title, command = "An undo finds no end", "sagenbaum status"+tenant
	case api.PageClockGuard:
		title, command = "A clock has jumped: no deadline fires", "sagenbaum doctor"+tenant
	default:
		title, command = page.Kind, "sagenbaum status"+tenant
	}
	add := func(name, value string) {
		if value = strings.Join(strings.Fields(value), " "); value != "" {
			if runes := []rune(value); len(runes) > chatTextMax {
				value = string(runes[:chatTextMax-1]) + "…"
			}
			facts = append(facts, [2]string{name, value})
		}
	}
	add("Reason", page.Reason)
	add("Plan", strings.TrimSpace(page.Plan+" "+page.Label))
	add("Action", strings.TrimSpace(page.Action+" "+page.Capability))
	add("Owner", page.Owner)
	add("Agent", page.Agent)
	add("Tenant", page.Tenant)
	if page.ClosesNs != 0 {
		add("Closes", time.Unix(0, page.ClosesNs).UTC().Format(time.RFC3339))
	}
	if page.Escalated {
		add("Not taken by", "hook "+page.Hook)
	}
	add("Since", time.Unix(0, page.AtNs).UTC().Format(time.RFC3339))
	return title, facts, command
}

type object = map[string]any

// slackText writes a text so that nothing in it is a link, a mention or an entity.
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// slackMessage is what an incoming webhook of Slack takes.
func slackMessage(page api.Page) object {
	title, facts, command := chatFacts(page)
	var lines []string
	for _, f := range facts {
		lines = append(lines, "*"+f[0]+"*  "+plainMark(f[1]))
	}
	return object{
		"text": slackText.Replace(title + ": " + page.Plan),
		"blocks": []object{
			{"type": "header", "text": object{"type": "plain_text", "text": title}},
			{"type": "section", "text": object{"type": "mrkdwn", "text": strings.Join(lines, "\n"),
				"verbatim": true}},
			{"type": "section", "text": object{"type": "mrkdwn", "text": "```" + slackText.Replace(command) +
				"```", "verbatim": true}},
		},
	}
}

// plainMark keeps the marks of emphasis and code in a text of an agent from being any:
// a character without a width parts them from the words.
func plainMark(text string) string {
	text = slackText.Replace(text)
	for _, mark := range [...]string{"*", "_", "~", "`"} {
		text = strings.ReplaceAll(text, mark, "\u200b"+mark+"\u200b")
	}
	return text
}

// teamsMessage is what a workflow webhook of Microsoft Teams takes: an adaptive card.
// Facts are text blocks of their own, whose text is plain where a run of rich text is.
func teamsMessage(page api.Page) object {
	title, facts, command := chatFacts(page)
	block := func(runs ...object) object { return object{"type": "RichTextBlock", "inlines": runs} }
	body := []object{block(object{"type": "TextRun", "text": title, "weight": "Bolder",
		"size": "Medium"})}
	for _, f := range facts {
		body = append(body, block(object{"type": "TextRun", "text": f[0] + "  ", "weight": "Bolder"},
			object{"type": "TextRun", "text": f[1]}))
	}
	body = append(body, block(object{"type": "TextRun", "text": command, "fontType": "Monospace"}))
	return object{"type": "message", "attachments": []object{{
		"contentType": "application/vnd.microsoft.card.adaptive",
		"content": object{
			"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard",
			"version": "1.4",
			"msteams": object{"width": "Full"}, "body": body,
		},
	}}}
}

// WebhookKeyMin is the least length, in bytes, of a key that posts are signed with.
const WebhookKeyMin = 24

// Headers of a signature, as the Standard Webhooks specification has them.
const (
	headerWebhookID        = "webhook-id"
	headerWebhookTimestamp = "webhook-timestamp"
	headerWebhookSignature = "webhook-signature"
)

// webhookID is a page's id without full stops, which part what is signed.
func webhookID(page string) string { return strings.ReplaceAll(page, ".", "_") }

// sign is the signature of a body at an instant with each key, the newest first:
// "v1," and the HMAC-SHA256 of id, unix seconds and body with full stops between, in
// base64, with spaces between several.
func sign(keys [][]byte, id string, at time.Time, body []byte) string {
	var all []string
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.", id, strconv.FormatInt(at.Unix(), 10))
		mac.Write(body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " ")
}
