package markup_test

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/host/console/markup"
)

func TestAValueIsEscapedForItsPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ template, value, want string }{
		{`<b>{{.}}</b>`, `<i>&"'`, `<b>&lt;i&gt;&amp;&#34;&#39;</b>`},
		{`<title>{{.}}</title>`, `</title>`, `<title>&lt;/title&gt;</title>`},
		{`<b>{{.}}</b>`, "a\x00b", "<b>a\uFFFDb</b>"},
		{`<b>{{.}}</b>`, "a\a\n", `<b>a&lt;BEL&gt; </b>`},
		{`<pre>{{lines .}}</pre>`, "a\a\n", "<pre>a&lt;BEL&gt;\n</pre>"},
		{`<p title="{{.}}">`, "a\a", `<p title="a&lt;BEL&gt;">`},
		{`<input value="{{.}}">`, "a\a", "<input value=\"a\a\">"},
		{`<a href="/{{.}}">`, "a\a", `<a href="/a%07">`},
		{`<p title="{{.}}">`, `" onclick="x`, `<p title="&#34; onclick=&#34;x">`},
		{`<p class="n {{.}}">`, `"><script>`, `<p class="n &#34;&gt;&lt;script&gt;">`},
		{`<p id="{{.}}" hidden>{{.}}`, `"`, `<p id="&#34;" hidden>&#34;`},
		{`<a href="{{.}}">`, `/t/a?b=c&d#e`, `<a href="/t/a?b=c&amp;d#e">`},
		{`<a href="{{.}}">`, `?a=b c"`, `<a href="?a=b%20c%22">`},
		{`<a href="{{.}}">`, ``, `<a href="">`},
		{`<a href="{{.}}">`, `/`, `<a href="/">`},
		{`<a href="{{.}}">`, `#a`, `<a href="#a">`},
		{`<a href="{{.}}">`, `javascript:alert(1)`, `<a href="#">`},
		{`<a href="{{.}}">`, ` javascript:alert(1)`, `<a href="#">`},
		{`<a href="{{.}}">`, `data:text/html,x`, `<a href="#">`},
		{`<a href="{{.}}">`, `https://evil.example`, `<a href="#">`},
		{`<a href="{{.}}">`, `//evil.example`, `<a href="#">`},
		{`<a href="{{.}}">`, `/\evil.example`, `<a href="#">`},
		{`<a href="{{.}}">`, "/\t/evil.example", `<a href="#">`},
		{`<a href="{{.}}">`, `\\evil.example`, `<a href="#">`},
		{`<form action="{{.}}">`, `vbscript:x`, `<form action="#">`},
		{`<button formaction="{{.}}">`, `javascript:x`, `<button formaction="#">`},
		{`<a HREF="{{.}}">`, `javascript:x`, `<a HREF="#">`},
		{`<a href="/p/{{.}}">`, `a b"%41%zé'`, `<a href="/p/a%20b%22%41%25z%c3%a9%27">`},
		{`<a href="/p?q={{.}}">`, `a&b=c#d e+"%41`, `<a href="/p?q=a%26b%3dc%23d%20e%2b%22%2541">`},
		{`<a href="/p#{{.}}">`, `a b&`, `<a href="/p#a%20b%26">`},
		{`<a href="{{.}}?q={{.}}">`, `/x&`, `<a href="/x&amp;?q=%2fx%26">`},
		{`<a href="/p{{if .}}#{{.}}{{end}}">`, `"`, `<a href="/p#%22">`},
		{`<a{{if .}} class="{{.}}"{{end}}>`, `"`, `<a class="&#34;">`},
		{`<br/>{{.}}<img src="/a.png" alt="">{{.}}`, `<`, `<br/>&lt;<img src="/a.png" alt="">&lt;`},
		{`<script src="/x.js" defer></script>{{.}}`, `<`, `<script src="/x.js" defer></script>&lt;`},
		{`<style>a{b:c}</style>{{.}}`, `<`, `<style>a{b:c}</style>&lt;`},
		{`{{range $i, $c := list .}}{{$i}}<b title="{{$c}}">{{end}}`, `"`, `0<b title="&#34;">`},
		{`{{with .}}{{template "other" .}}{{end}}`, `<`, `[&lt;]`},
	} {
		got, err := page(c.template, c.value)
		if err != nil || got != c.want {
			t.Errorf("%s of %q:\n%s %v, want\n%s", c.template, c.value, got, err, c.want)
		}
	}
}

// page is a template filled with a value.
func page(template string, value any) (string, error) {
	set, err := markup.Parse(
		map[string]any{
			"list":  func(s string) []string { return []string{s} },
			"lines": func(s string) markup.Lines { return markup.Lines(s) },
		},
		func(text string, lines bool) string {
			if !lines {
				text = strings.ReplaceAll(text, "\n", " ")
			}
			return strings.ReplaceAll(text, "\a", "<BEL>")
		},
		`{{define "other"}}[{{.}}]{{end}}`, `{{define "page"}}`+template+`{{end}}`)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = set.Execute(&out, "page", value)
	return out.String(), err
}

func TestATemplateThatPrintsWhereNoEscapingHelpsIsRefused(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		`<p {{.}}>`:                          "outside of quotes",
		`<p id={{.}}>`:                       "not in double quotes",
		`<p id='{{.}}'>`:                     "not in double quotes",
		`<{{.}}>`:                            "a tag without a name",
		`<p id="a"title="{{.}}">`:            "no space separates",
		`<p style="{{.}}">`:                  `attribute "style"`,
		`<p onclick="{{.}}">`:                `attribute "onclick"`,
		`<p OnClick="{{.}}">`:                `attribute "onclick"`,
		`<img srcset="{{.}}">`:               `attribute "srcset"`,
		`<iframe srcdoc="{{.}}">`:            `attribute "srcdoc"`,
		`<use xlink:href="{{.}}">`:           `attribute "xlink:href"`,
		`<script>{{.}}</script>`:             "in a script or style",
		`<SCRIPT>{{.}}</SCRIPT>`:             "in a script or style",
		`<style>{{.}}</style>`:               "in a script or style",
		`<!-- {{.}} -->`:                     "a comment",
		`<p id="{{.}}`:                       "ends within",
		`<p id="{{template "page" .}}">`:     "{{template}} in a tag",
		`<p {{if .}}id="{{end}}">`:           "different places",
		`<p>{{if .}}<b {{end}}`:              "different places",
		`{{range list .}}<p {{end}}`:         "different places",
		`<a href="/p{{if .}}?{{end}}{{.}}">`: "begin a query in one case only",
		`{{. | list}}`:                       "not supported",
	} {
		if _, err := page(template, "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", template, err, want)
		}
	}
}
