module github.com/sagenbaum/sagenbaum/executor/host/console/web/gen

go 1.26

require github.com/a-h/templ v0.3.977

require github.com/a-h/parse v0.0.0-20250122154542-74294addb73e // indirect
