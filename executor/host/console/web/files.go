package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"path"
)

//go:embed console.css console.js icon.svg
var files embed.FS

// Build is a short digest of the files that pages load: the address of one that has it never
// changes.
var Build = buildOf(files)

func buildOf(files fs.FS) string {
	h := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		h.Write([]byte(name))
		h.Write(data)
		return err
	})
	if err != nil {
		panic("console: cannot read what is embedded: " + err.Error())
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// static is the address of a file of this build.
func static(name string) string { return "/static/" + Build + "/" + name }

// File returns a file that pages load, and its content type; ok reports whether there is one.
func File(name string) (data []byte, contentType string, ok bool) {
	contentType = map[string]string{
		".css": "text/css; charset=utf-8",
		".js":  "text/javascript; charset=utf-8",
		".svg": "image/svg+xml",
	}[path.Ext(name)]
	data, err := files.ReadFile(name)
	return data, contentType, err == nil
}
