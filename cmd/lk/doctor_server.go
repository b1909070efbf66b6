package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/load"
)

const (
	roundTrips    = 5
	slowRoundTrip = 500 * time.Millisecond // with a TTL of a few seconds, much of the time for a renewal
)

// roundTrips measures how long the server takes to answer.
func (d *doctor) roundTrips(ctx context.Context, client *connection, url string) {
	const check = "round trip"
	var took load.Histogram
	for range roundTrips {
		began := time.Now()
		for _, err := range client.List(ctx, lockkeeper.Query{Ref: lockkeeper.Ref{Session: "lk-doctor", ID: 1},
			Stale: true}) {
			if _, old := lockkeeper.Stale(err); err != nil && !old {
				d.wrong(lockkeeper.Broken, check, words(err), d.openRemedy(err, url))
				return
			}
		}
		took.Add(time.Since(began))
	}
	text := fmt.Sprintf("%s, at most %s, of %d questions", brief(took.Quantile(0.5)), brief(took.Max()), roundTrips)
	if took.Max() > slowRoundTrip {
		d.wrong(lockkeeper.Doubtful, check, text,
			"keep TTLs well above it, as in lk run --ttl 1m; or use a server that is nearer")
		return
	}
	d.fine(check, "%s", text)
}

// A certificate that expires within certificateSoon is doubtful.
const certificateSoon = 14 * duration.Day

// server checks the state that the server reports of itself.
func (d *doctor) server(ctx context.Context, client *connection) {
	e, ok := client.engine.(lockkeeper.ServerClient)
	if !ok {
		return
	}
	about, err := e.About(ctx)
	if err != nil {
		d.wrong(lockkeeper.Doubtful, "server", err.Error(), "use client and server of one version")
		return
	}
	if about.Version != version() {
		d.wrong(lockkeeper.Doubtful, "server", fmt.Sprintf("it runs %s, and this is %s", about.Version, version()),
			"use client and server of one version")
	} else {
		d.fine("server", "%s, up for %s", about.Version, duration.Elapsed(about.Uptime))
	}
	d.fine("at the server", "%s held, %d waiting, of %s; %s", plural(int(about.Held), "lock"), about.Waiting,
		plural(int(about.Sessions), "session"), plural(int(about.Connections), "connection"))
	if about.ClaimsRefused != "" {
		remedy := "check the disk or database that keeps its locks"
		if lockkeeper.OutageOf(client.engine) != nil {
			remedy = quorumRemedy
		}
		d.wrong(lockkeeper.Broken, "the server's engine", "it can take no claims: "+about.ClaimsRefused, remedy)
	}
	if about.Draining != "" {
		d.wrong(lockkeeper.Broken, "taking new claims", "it does not: "+about.Draining,
			"wait until it is back, or name another server")
	}
	if about.Identity == "" {
		d.fine("identity", "none: everybody who reaches this server may do everything")
	} else {
		d.fine("identity", "%s, to the server", about.Identity)
		d.rights(ctx, client)
	}
	if theirs, own, err := e.Expiry(ctx); err == nil {
		d.certificate("the server's certificate", theirs, "renew it, as with lk ca: the server takes it up by itself")
		d.certificate("own certificate", own, "have a new one made, and put it in the place of the old")
	}
}

// nowhere is a path that nobody uses.
const nowhere lockkeeper.Path = "lk-doctor/nowhere"

// rights checks that a rule names the identity. Where the engine decides, as by the policy of a cluster, the server
// lets in also those to whom no rule allows anything: a list of everything is empty for them, and one of a path
// is denied with that reason. If the list fails otherwise, it is unknown whether a rule names the identity.
func (d *doctor) rights(ctx context.Context, client *connection) {
	const check = "rights"
	_, err := listAll(ctx, client.Client, lockkeeper.Query{Meets: nowhere, Brief: true, Stale: true})
	_, stale := lockkeeper.Stale(err)
	byRules := errors.Is(err, lockkeeper.ErrDenied) && !errors.Is(err, lockkeeper.Quota)
	switch {
	case isUnnamed(err):
		d.wrong(lockkeeper.Broken, check, words(err), serverRemedy(err))
	case !client.Guarantees().Partial:
		d.fine(check, "this identity may look everywhere")
	case err == nil || stale || byRules:
		d.fine(check, "a rule names this identity; it may not look everywhere")
	default:
		d.wrong(lockkeeper.Doubtful, check, "unknown: "+words(err), "repeat lk doctor when it can be asked")
	}
}

// certificate checks how long a certificate is still valid.
func (d *doctor) certificate(check string, until time.Time, remedy string) {
	switch rest := time.Until(until); {
	case until.IsZero():
	case rest < certificateSoon:
		d.wrong(lockkeeper.Doubtful, check, "it ends on "+until.Format(time.DateOnly), remedy)
	default:
		d.fine(check, "good until %s", until.Format(time.DateOnly))
	}
}
