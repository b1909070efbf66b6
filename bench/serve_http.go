package main

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/gctune"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/httpapi"
)

// serveOverHTTP is our server of an engine in memory, for HTTP alone.
func serveOverHTTP(l net.Listener) error {
	gctune.Tune() // as "lk serve" does
	return httpapi.New(access.New(memlock.New(), nil, access.Options{}), httpapi.Options{}).Server().Serve(l)
}

// The JSON that our server has, as a program would write it down that does nothing else.
type (
	bareTarget struct {
		Path string `json:"path"`
		Mode string `json:"mode"`
	}
	bareClaim struct {
		Claim    string       `json:"claim"`
		Change   int          `json:"change"`
		Revision int          `json:"revision"`
		State    string       `json:"state"`
		Targets  []bareTarget `json:"targets"`
		As       string       `json:"as"`
		Fence    int          `json:"fence"`
		Ticket   int          `json:"ticket"`
		Age      float64      `json:"age"`
		TTL      float64      `json:"ttl"`
	}
)

// serveBareHTTP answers POST and DELETE as our server does, and keeps nothing.
func serveBareHTTP(l net.Listener) error {
	gctune.Tune() // as ours, so that it is no matter of that
	const claim = "http-30s-abcdefghijklmnopqrstuvwxyz.1"
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/claims", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Path string `json:"path"`
			TTL  int    `json:"ttl"`
			As   string `json:"as"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		text, err := json.Marshal(bareClaim{
			Claim: claim, Change: 1_234_567, State: "held", Targets: []bareTarget{{asked.Path, "exclusive"}},
			As: asked.As, Fence: 1_234_567, Ticket: 1_234_567, TTL: 30.000123,
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.Header().Set("Location", "/v1/claims/"+claim)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(text)
	})
	mux.HandleFunc("DELETE /v1/claims/{claim}", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	return http.Serve(l, mux)
}
