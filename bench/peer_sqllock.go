package main

import (
	"context"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	_ "github.com/lockkeeper/lockkeeper/engine/sqllock"
)

// sqllockPeer is our engine on a database, which all clients of this process share:
// in one session, as goroutines of one program do, or in one each.
type sqllockPeer struct {
	databaseServer
	kind   string // of the database
	scheme string // of its URLs
	each   bool
}

func (p *sqllockPeer) about() about {
	a := about{name: "sqllock, " + p.kind, kinds: []kind{distinct, contended, handoff}, lacks: p.lacking}
	a.how = "our engine on a database, Claim and End; one engine for all, and one session"
	if p.each {
		a.name += ", sessions"
		a.how = "the same, one engine for all, and a session each"
	}
	return a
}

// lacking is what is missing of the database, or of our engine for it.
func (p *sqllockPeer) lacking() error {
	if err := p.missing(); err != nil {
		return err
	}
	return lockkeeper.CheckURL(p.scheme + "://127.0.0.1/locks")
}

func (p *sqllockPeer) open(ctx context.Context, n int) (clients, error) {
	opened, err := lockkeeper.Open(ctx, p.url())
	if err != nil {
		return nil, err
	}
	all := &lockers{shut: []func(){func() { opened.Close() }}}
	var session *lkSession
	for k := range n {
		if session == nil || p.each {
			session, err = openSession(ctx, opened, fmt.Sprintf("bench-%03d-%03d", sessions.Add(1), k))
			if err != nil {
				all.close()
				return nil, err
			}
			all.shut = append(all.shut, session.close)
		}
		all.each = append(all.each, session.locker())
	}
	return all, nil
}
