package main

import (
	"errors"
	"html/template"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// again is when a browser that was refused asks again.
const again = 30 * time.Second

var refusal = template.Must(template.New("refusal").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
{{with .Note}}<p>{{.}}</p>
{{end}}</html>
`))

// refuse says why there is no page now. Nobody mistakes an upgrade for a failure: only a lock that is
// taken gives the page "back soon".
func refuse(w http.ResponseWriter, err error) {
	page := struct{ Title, Text, Note string }{Title: "Out of order", Text: "We are looking into it."}
	var taken *lockkeeper.Error
	switch {
	case errors.Is(err, lockkeeper.ErrNotAcquired) && errors.As(err, &taken):
		page.Title, page.Text = "Back soon", "We are improving this site. This page comes back by itself."
		page.Note = note(taken.Blocked)
	case errors.Is(err, errFull):
		page.Title, page.Text = "Busy", "There are too many visitors just now."
	default:
		log.Print(err)
	}
	seconds := strconv.Itoa(int(again.Seconds()))
	w.Header().Set("Retry-After", seconds) // for programs
	w.Header().Set("Refresh", seconds)     // for browsers
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = refusal.Execute(w, page) // the visitor has left
}

// note returns the note of the upgrade, if it left one.
func note(blocked []lockkeeper.Blocker) string {
	for _, b := range blocked {
		if b.Mode == lockkeeper.ModeExclusive && b.Note != "" {
			return b.Note
		}
	}
	return ""
}
