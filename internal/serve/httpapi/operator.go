package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/listing"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// The number of claims in one answer.
const (
	defaultListed = 1000
	maxListed     = 10_000
)

var operatorRoutes = []route{
	{"GET /v1/why", false, broad((*call).why)},
	{"GET /v1/stats", false, broad((*call).stats)},
	{"GET /v1/freezes", false, broad((*call).listFreezes)},
	{"PUT /v1/freezes", true, (*call).freeze},
	{"DELETE /v1/freezes", false, (*call).thaw},
	{"PUT /v1/freezes/{path...}", true, (*call).freeze},
	{"DELETE /v1/freezes/{path...}", false, (*call).thaw},
	{"GET /v1/server", false, (*call).server},
	{"GET /v1/cluster", false, (*call).cluster},
	{"POST /v1/drain", true, (*call).drain},
}

// A claimList is the answer of a list.
type claimList struct {
	Claims []lockkeeper.Status `json:"claims"`
	More   bool                `json:"more"` // the limit left out some
	staleness
}

// selection reads the parameters path and session.
func selection(path, session string, m *mistakes) (q lockkeeper.Query) {
	if path != "" {
		var err error
		q.Meets, err = lockkeeper.ParsePath(path)
		m.add(err)
	}
	if session != "" {
		q.Session = session
		m.add((&lockkeeper.Session{ID: session, TTL: lockkeeper.DefaultTTL}).Check(false))
	}
	return q
}

// limitOf reads the parameter limit.
func limitOf(text string, m *mistakes) int {
	if text == "" {
		return defaultListed
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxListed {
		m.addf("limit %s is out of range: 1 to %d", quoted(text), maxListed)
	}
	return n
}

// listClaims is GET /v1/claims: first holds, then waiting claims, then freezes.
func (c *call) listClaims() error {
	var m mistakes
	values := c.query(&m, "path", "session", "state", "limit")
	q := selection(values.Get("path"), values.Get("session"), &m)
	var state lockkeeper.State
	if text := values.Get("state"); text != "" {
		if err := state.UnmarshalText([]byte(text)); err != nil || state == lockkeeper.Ended {
			m.addf("state %s is none of waiting, held, frozen", quoted(text))
		}
	}
	limit := limitOf(values.Get("limit"), &m)
	if err := m.err(); err != nil {
		return err
	}
	return c.list(q, state, limit)
}

// list answers with the claims that q selects, in that state unless it is 0.
func (c *call) list(q lockkeeper.Query, state lockkeeper.State, limit int) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), solo.RoundTrip)
	defer cancel()
	answer := claimList{Claims: []lockkeeper.Status{}}
	q.Stale = true
	for st, err := range c.engine().List(ctx, q) {
		if err != nil {
			if answer.staleness, err = staleBy(err); err != nil {
				return err
			}
			break
		}
		if state != 0 && st.State != state {
			continue
		}
		if len(answer.Claims) == limit {
			answer.More = true
			break
		}
		answer.Claims = append(answer.Claims, st)
	}
	if answer.More {
		var err error
		if answer.staleness, err = c.staleAfter(ctx); err != nil {
			return err
		}
	}
	return c.write(http.StatusOK, answer)
}

// broad limits how many calls of a handler run at a time, because each copies a whole list.
func broad(handle func(*call) error) func(*call) error {
	return func(c *call) error {
		leave, err := c.take(limits.BroadLists)
		if err != nil {
			return err
		}
		defer leave()
		return handle(c)
	}
}

// all returns all claims and freezes of one moment, for an answer about path. If none of them is at path, above
// it or below it, the error is that of a list of that path: to an identity that may not look there, it is not free.
func (c *call) all(path lockkeeper.Path) (all []lockkeeper.Status, s staleness, err error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), solo.RoundTrip)
	defer cancel()
	for st, failed := range c.engine().List(ctx, lockkeeper.Query{Stale: true}) {
		if failed != nil {
			if s, err = staleBy(failed); err != nil {
				return nil, s, err
			}
			break
		}
		all = append(all, st)
	}
	if len(listing.Overlapping(path, all)) == 0 {
		err = c.deniedAt(path)
	}
	return all, s, err
}

// deniedAt is listing.DeniedAt for the caller of c, bounded.
func (c *call) deniedAt(path lockkeeper.Path) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), solo.RoundTrip)
	defer cancel()
	return listing.DeniedAt(ctx, c.engine(), path)
}

// why is GET /v1/why: the claims that explain why a path is not free.
func (c *call) why() error {
	var m mistakes
	values := c.query(&m, "path", "limit")
	q, limit := selection(values.Get("path"), "", &m), limitOf(values.Get("limit"), &m)
	if err := m.err(); err != nil {
		return err
	}
	all, stale, err := c.all(q.Meets)
	if err != nil {
		return err
	}
	chosen := listing.Explaining(q.Meets, all)
	more := len(chosen) > limit
	return c.write(http.StatusOK, claimList{append([]lockkeeper.Status{}, chosen[:min(limit, len(chosen))]...), more,
		stale})
}

// stats is GET /v1/stats, the same as lk stats --json.
func (c *call) stats() error {
	var m mistakes
	q := selection(c.query(&m, "path").Get("path"), "", &m)
	if err := m.err(); err != nil {
		return err
	}
	all, stale, err := c.all(q.Meets)
	if err != nil {
		return err
	}
	return c.write(http.StatusOK, statistics{listing.StatsOf(listing.Overlapping(q.Meets, all)), stale})
}

// operate runs an operator's action, which needs a feature of the engine, in a transient session.
func (c *call) operate(needed lockkeeper.Features, do func(context.Context, lockkeeper.Key) error) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), solo.RoundTrip)
	defer cancel()
	if err := c.engine().Guarantees().RefuseWithout(needed); err != nil {
		return err
	}
	return solo.Transient(ctx, c.engine(), httpPrefix+"operator-", solo.RoundTrip, c.pass.Name(), do)
}

// label returns an operator's label; without a name, with the name of the identity.
func (c *call) label(as, note, link string) lockkeeper.Label {
	return lockkeeper.Label{As: cmp.Or(as, c.pass.Name()), Note: note, Link: link}
}

// revokeClaim is POST /v1/claims/{claim}/revoke. It answers with the status of the claim
// afterwards.
func (c *call) revokeClaim() error {
	var m mistakes
	ref := c.ref(&m)
	c.query(&m)
	var asked struct {
		As    string `json:"as"`
		Note  string `json:"note"`
		Link  string `json:"link"`
		Force bool   `json:"force"`
	}
	if c.r.ContentLength != 0 {
		c.body(&asked, &m)
	}
	e := lockkeeper.Ending{
		Kind:  lockkeeper.Revoke,
		Ref:   ref,
		Force: asked.Force,
		Label: c.label(asked.As, asked.Note, asked.Link),
	}
	m.add(e.Check())
	err := m.err()
	if err != nil {
		return err
	}
	now := observation{}
	err = c.operate(lockkeeper.FeatureRevoke, func(ctx context.Context, k lockkeeper.Key) error {
		if err := c.engine().End(ctx, k, e); err != nil {
			return err
		}
		now.At = time.Now()
		now.Status, err = solo.Look(ctx, c.engine(), ref)
		return err
	})
	if errors.Is(err, lockkeeper.ErrNotHeld) {
		return unknownClaim(ref)
	}
	if err != nil {
		return err
	}
	if now.State == 0 {
		c.w.WriteHeader(http.StatusNoContent) // ended and forgotten
		return nil
	}
	return c.writeClaim(http.StatusOK, now)
}

// listFreezes is GET /v1/freezes.
func (c *call) listFreezes() error {
	var m mistakes
	c.query(&m)
	if err := m.err(); err != nil {
		return err
	}
	return c.list(lockkeeper.Query{}, lockkeeper.Freezing, maxListed)
}

// freezable returns the path of a freeze. A request must name a freeze of everything explicitly,
// because a path may be empty by mistake.
func (c *call) freezable(m *mistakes, all bool) lockkeeper.Path {
	switch named := c.variable; {
	case all && named != "":
		m.addf("all excludes the path %s: give one of them", quoted(named))
		return ""
	case all:
		return lockkeeper.Root
	case strings.Trim(named, "/") == "" && c.r.Method == http.MethodDelete:
		m.addf("no path: DELETE /v1/freezes/PATH thaws a path, and DELETE /v1/freezes?all=true ends the freeze of " +
			"everything that a PUT with {\"all\":true} has made")
		return ""
	case strings.Trim(named, "/") == "":
		m.addf("no path: PUT /v1/freezes/PATH freezes a path, and {\"all\":true} at /v1/freezes everything")
		return ""
	}
	return c.path(m)
}

// freeze is PUT /v1/freezes/{path...}. It prevents new grants for a time.
func (c *call) freeze() error {
	var m mistakes
	c.query(&m)
	var asked struct {
		All  bool           `json:"all"`
		For  *durationField `json:"for"`
		As   string         `json:"as"`
		Note string         `json:"note"`
		Link string         `json:"link"`
	}
	c.body(&asked, &m)
	path := c.freezable(&m, asked.All)
	want := lockkeeper.Want{
		ID: solo.ClaimID, Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}},
		Freeze: lockkeeper.MinTTL, Label: c.label(asked.As, asked.Note, asked.Link),
	}
	switch {
	case asked.For != nil && *asked.For != 0:
		want.Freeze = time.Duration(*asked.For)
	case !m.in("for"):
		m.addf("\"for\" is missing: give a duration, such as \"30m\"; DELETE ends the freeze earlier")
	}
	if path == "" {
		want.Targets[0].Path = "path" // m has its mistakes
	}
	m.add(want.Check())
	err := m.err()
	if err != nil {
		return err
	}
	now := observation{}
	err = c.operate(lockkeeper.FeatureFreeze, func(ctx context.Context, k lockkeeper.Key) (err error) {
		now.At = time.Now()
		now.Status, err = c.engine().Claim(ctx, k, want)
		return err
	})
	if err != nil {
		return err
	}
	return c.writeClaim(http.StatusOK, now)
}

// thaw is DELETE /v1/freezes/{path...}. The engine keeps no label of a thaw; the audit log does.
func (c *call) thaw() error {
	var m mistakes
	values := c.query(&m, "all", "as", "note", "link")
	all, by := values.Get("all"), c.label(values.Get("as"), values.Get("note"), values.Get("link"))
	m.add((&lockkeeper.Ending{Kind: lockkeeper.Revoke, Label: by}).Check())
	if all != "" && all != "true" {
		m.addf("all is %s: write all=true, or leave it out", quoted(all))
	}
	path := c.freezable(&m, all == "true")
	err := m.err()
	if err != nil {
		return err
	}
	err = c.operate(lockkeeper.FeatureFreeze, func(ctx context.Context, k lockkeeper.Key) error {
		return c.engine().End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: path, Label: by})
	})
	if errors.Is(err, lockkeeper.ErrNotHeld) {
		return &refusal{problem: problem{
			name: "not-frozen", Status: http.StatusNotFound, Title: "not frozen",
			Detail: fmt.Sprintf("%s is not frozen: GET /v1/freezes lists all freezes", path),
		}}
	}
	if err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// server is GET /v1/server: version, engine and the identity of the caller.
func (c *call) server() error {
	var m mistakes
	c.query(&m)
	if err := m.err(); err != nil {
		return err
	}
	if err := c.pass.Named(); err != nil {
		return err
	}
	answer, err := c.describe()
	if err != nil {
		return err
	}
	return c.write(http.StatusOK, answer)
}

// describe returns the fields of GET /v1/server. With an error, those of Options.About are missing.
func (c *call) describe() (map[string]any, error) {
	answer := map[string]any{}
	var failed error
	if c.api.options.About != nil {
		ctx, cancel := context.WithTimeout(c.r.Context(), solo.RoundTrip)
		defer cancel()
		about, err := c.api.options.About(ctx)
		failed = err
		for name, v := range about {
			answer[name] = v
		}
	}
	g := c.engine().Guarantees()
	answer["version"], answer["engine"], answer["features"] = c.api.options.Version, g.Name, g.Features.Names()
	answer["uptime"] = seconds(time.Since(c.api.began))
	if name := c.pass.Name(); name != "" {
		answer["identity"] = name
	}
	if reason, yes := c.api.gate.Draining(); yes {
		answer["draining"] = reason
	}
	return answer, failed
}

// cluster is GET /v1/cluster: the nodes of the cluster, for identities that may look at everything. It
// waits for nobody, so it answers without a quorum, too.
func (c *call) cluster() error {
	var m mistakes
	c.query(&m)
	if err := m.err(); err != nil {
		return err
	}
	if c.api.options.Cluster == nil {
		return &lockkeeper.Error{Err: lockkeeper.ErrUnsupported, Detail: "this server is no node of a cluster"}
	}
	if err := c.pass.May(access.Look, ""); err != nil {
		return err
	}
	return c.write(http.StatusOK, c.api.options.Cluster())
}

// drain is POST /v1/drain. The server refuses new claims from then on.
func (c *call) drain() error {
	var asked struct {
		Reason        string `json:"reason"`
		UnlessVersion string `json:"unless_version"`
	}
	var m mistakes
	c.query(&m)
	if c.r.ContentLength != 0 {
		c.body(&asked, &m)
	}
	asked.Reason = cmp.Or(asked.Reason, "an operator asked for it")
	m.add((&lockkeeper.Ending{Kind: lockkeeper.Revoke, Label: lockkeeper.Label{Note: asked.Reason}}).Check())
	if err := m.err(); err != nil {
		return err
	}
	if c.api.options.Drain == nil {
		return &lockkeeper.Error{Err: lockkeeper.ErrUnsupported, Detail: "this server cannot be drained"}
	}
	type answer struct {
		Draining string `json:"draining,omitempty"`
		Began    bool   `json:"began"`        // by this request
		Same     bool   `json:"same_version"` // the server has that version, so the request did nothing
		Version  string `json:"version"`
	}
	version := c.api.options.Version
	if asked.UnlessVersion != "" && asked.UnlessVersion == version {
		if err := c.pass.May(access.Drain, ""); err != nil {
			return err
		}
		return c.write(http.StatusOK, answer{Same: true, Version: version})
	}
	began, err := c.pass.Drain(asked.Reason)
	if err != nil {
		return err
	}
	if began {
		c.api.options.Drain(asked.Reason)
	}
	reason, _ := c.api.gate.Draining()
	return c.write(http.StatusAccepted, answer{Draining: reason, Began: began, Version: version})
}
