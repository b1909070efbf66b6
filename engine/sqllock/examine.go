package sqllock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

const (
	// examineBound bounds each check: a table that another transaction keeps locked must not hide
	// the findings of the others.
	examineBound = 3 * time.Second
	// overdueBound is how long a session may be over without having been ended, if a process cleans
	// up: with room for a busy database.
	overdueBound = 2 * cleanEvery
	// mostNamed bounds the names in a finding.
	mostNamed = 3
)

// examination is one Examine.
type examination struct {
	e   *Engine
	ctx context.Context
}

// Examine implements lockkeeper.Examiner. It reads settings and statistics of the server as far as
// this user may see them, and rows of all tables; it locks expired sessions for a moment.
func (e *Engine) Examine(ctx context.Context) []lockkeeper.Finding {
	checks := []func(*examination) lockkeeper.Finding{(*examination).database}
	if e.db.flavour == postgres {
		checks = append(checks, (*examination).durabilityPostgres, (*examination).replicationPostgres,
			(*examination).noticesPostgres)
	} else {
		checks = append(checks, (*examination).durabilityMySQL, (*examination).replicationMySQL, (*examination).noticesMySQL)
	}
	checks = append(checks, (*examination).rights, (*examination).connections, (*examination).sessions,
		(*examination).expiry, (*examination).contradictions)
	if e.db.flavour == postgres {
		checks = append(checks, (*examination).tablesPostgres, (*examination).purgingPostgres)
	} else {
		checks = append(checks, (*examination).tablesMySQL, (*examination).purgingMySQL)
	}
	checks = append(checks, (*examination).clock)
	findings := make([]lockkeeper.Finding, len(checks))
	for i, check := range checks {
		bounded, cancel := context.WithTimeout(ctx, examineBound)
		findings[i] = check(&examination{e, bounded})
		cancel()
	}
	return findings
}

// ask runs statements one after the other on one connection. Their answers may be read twice.
func (x *examination) ask(all ...statement) error {
	return x.e.reading(x.ctx, func(l link) error {
		for _, s := range all {
			if err := l.send(x.ctx, []statement{s}); err != nil {
				return err
			}
		}
		return nil
	})
}

// one reads one row.
func (x *examination) one(text string, into ...any) error {
	return x.ask(x.row(text, into...))
}

// row is a statement whose answer is one row.
func (x *examination) row(text string, into ...any) statement {
	return statement{text: x.e.db.sql(text), each: func(scan scanner) error { return scan(into...) }}
}

// now is the database's clock, in nanoseconds.
func (x *examination) now() (int64, error) {
	var at reading
	err := x.ask(x.e.dialect.clock(&at, 0)...)
	return int64(at.now), err
}

// fine, doubtful and broken make findings; unseen is one of what can't be looked at.
func fine(check, format string, args ...any) lockkeeper.Finding {
	return lockkeeper.Finding{Check: check, Grade: lockkeeper.Fine, Detail: fmt.Sprintf(format, args...)}
}

func doubtful(check, detail, remedy string) lockkeeper.Finding {
	return lockkeeper.Finding{Check: check, Grade: lockkeeper.Doubtful, Detail: detail, Remedy: remedy}
}

func broken(check, detail, remedy string) lockkeeper.Finding {
	return lockkeeper.Finding{Check: check, Grade: lockkeeper.Broken, Detail: detail, Remedy: remedy}
}

func (x *examination) unseen(check string, err error) lockkeeper.Finding {
	if c := code(err); slices.Contains([]string{"42501", "1142", "1143", "1227"}, c) {
		return fine(check, "this user may not see it")
	}
	return broken(check, oneLine{err}.Error(),
		"see what is said of the database, or try again: the server may be busy, or somebody keeps a table locked")
}

// brief is a duration for people.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func size(bytes int64) string {
	if bytes < 10<<20 {
		return fmt.Sprintf("%d kB", bytes>>10)
	}
	return fmt.Sprintf("%d MB", bytes>>20)
}

func some(names []string) string {
	if len(names) > mostNamed {
		return strings.Join(names[:mostNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-mostNamed)
	}
	return strings.Join(names, ", ")
}

// database checks that the database answers.
func (x *examination) database() lockkeeper.Finding {
	const check = "database"
	where := "version(), current_database(), current_user"
	if x.e.db.flavour == mysql {
		where = "version(), database(), current_user()"
	}
	var server, name, user string
	version, began := 0, time.Now()
	err := x.one("SELECT "+where, &server, &name, &user)
	took := time.Since(began)
	if err == nil {
		err = x.one("SELECT coalesce(max(version), 0) FROM {migrations}", &version)
	}
	if err != nil {
		return broken(check, oneLine{err}.Error(),
			"see that the server runs, that this computer reaches it, and that nobody has removed the tables "+x.e.db.place())
	}
	if x.e.db.flavour == postgres {
		server, _, _ = strings.Cut(server, " on ")
	}
	latest := schemas()[x.e.db.flavour].Latest
	detail := fmt.Sprintf("%s, database %s as %s, tables %s of version %d; a question takes %s", server, name, user,
		x.e.db.place(), version, brief(took))
	if version > latest {
		return doubtful(check, detail, fmt.Sprintf("a newer program has changed the tables; this one knows version %d: "+
			"update it and restart it", latest))
	}
	return fine(check, "%s", detail)
}

// rights tries the statements of the engine, on no rows.
func (x *examination) rights() lockkeeper.Finding {
	const check = "rights"
	var at reading
	d := x.e.dialect
	all := append(d.begin(patience{latchPatience, idleFirst}), d.latch([]latch{{path: "lk", exclusive: true}})...)
	all = append(append(all, d.clock(&at, 1)...), d.rollback())
	for _, t := range []struct{ name, column, all string }{
		{"sessions", "version", "*"}, {"claims", "change_no", "*"}, {"targets", "mode", "*"}, {"freezes", "until_ns", "*"},
		{"hold_times", "at_ns", "*"}, {"wakeups", "sent_ns", "process, session, id, sent_ns"}, {"watchers", "until_ns", "*"},
	} {
		into, n := "{"+t.name+"}", 0
		if t.all != "*" {
			into += " (" + t.all + ")"
		}
		all = append(all,
			x.row("SELECT count(*) FROM {"+t.name+"} WHERE 1 = 0", &n),
			statement{text: x.e.db.sql("UPDATE {" + t.name + "} SET " + t.column + " = " + t.column + " WHERE 1 = 0")},
			statement{text: x.e.db.sql("DELETE FROM {" + t.name + "} WHERE 1 = 0")},
			statement{text: x.e.db.sql("INSERT INTO " + into + " SELECT " + t.all + " FROM {" + t.name + "} WHERE 1 = 0")})
	}
	err := x.ask(all...)
	for err != nil && d.outcomeOf(err, false) == lockTimeout && x.ctx.Err() == nil {
		err = x.ask(all...) // it has waited for a latch
	}
	switch {
	case err != nil && (d.outcomeOf(err, false) == lockTimeout || x.ctx.Err() != nil):
		return x.unseen(check, err)
	case err != nil:
		return broken(check, oneLine{err}.Error(), "\"lk migrate --print\" shows the rights that suffice; if the server "+
			"can only be read, name the one that can be written to")
	}
	return fine(check, "this user may read and change all rows")
}

// sessions counts sessions and claims.
func (x *examination) sessions() lockkeeper.Finding {
	const check = "sessions"
	now, err := x.now()
	var open, held, waiting, wakeups int
	if err == nil {
		err = x.ask(
			x.row(fmt.Sprintf("SELECT count(*) FROM {sessions} WHERE state = 'open' AND (deadline_ns IS NULL OR deadline_ns "+
				"> %d)", now), &open),
			x.row(fmt.Sprintf(`SELECT coalesce(sum(CASE WHEN c.state = 'waiting' THEN 0 ELSE 1 END),
				0), coalesce(sum(CASE WHEN c.state = 'waiting' THEN 1 ELSE 0 END), 0)
				FROM {claims} c JOIN {sessions} s ON s.id = c.session
				WHERE c.state <> 'ended' AND s.state = 'open'
				AND (s.deadline_ns IS NULL OR s.deadline_ns > %d)`, now), &held, &waiting),
			x.row("SELECT count(*) FROM {wakeups}", &wakeups))
	}
	if err != nil {
		return x.unseen(check, err)
	}
	return fine(check, "%d live; %d held, %d waiting; %d wake-ups under way", open, held, waiting, wakeups)
}

// expiry checks that expired sessions were ended.
func (x *examination) expiry() lockkeeper.Finding {
	const check = "expiry"
	now, err := x.now()
	if err != nil {
		return x.unseen(check, err)
	}
	over, kept, err := x.overdue(now)
	switch {
	case err != nil:
		return x.unseen(check, err)
	case len(over) == 0:
		return fine(check, "no session has been over for more than %s without having been ended", overdueBound)
	}
	since := brief(time.Duration(now - over[0].deadline))
	if len(kept) > 0 {
		detail, remedy := x.keeper(kept[0])
		return broken(check, fmt.Sprintf("it can't run: another transaction keeps the rows locked of sessions that should "+
			"have ended up to %s ago: %s%s", since, some(kept), detail), remedy)
	}
	var ids []string
	for _, s := range over {
		ids = append(ids, s.id)
	}
	return doubtful(check, fmt.Sprintf("these sessions should have ended up to %s ago, and nobody has ended them: %s",
		since, some(ids)),
		fmt.Sprintf("nothing need be done if no process uses the locks now: the next that comes ends them. Any that has "+
			"claims, or serves, looks every %s: if there is one, see what is said of rights and of the database", cleanEvery))
}

type overdueSession struct {
	id       string
	deadline int64
}

// overdue reads sessions that have been over for too long, the longest first, and which of them
// another transaction keeps locked.
func (x *examination) overdue(now int64) (over []overdueSession, kept []string, err error) {
	const most = 20
	text := fmt.Sprintf("SELECT id, deadline_ns FROM {sessions} WHERE state = 'open' AND deadline_ns < %d ORDER BY "+
		"deadline_ns LIMIT %d", now-int64(overdueBound), most)
	read := func(text string, into *[]overdueSession) statement {
		return statement{text: x.e.db.sql(text), each: func(scan scanner) error {
			var s overdueSession
			err := scan(&s.id, &s.deadline)
			*into = append(*into, s)
			return err
		}}
	}
	var free []overdueSession
	all := append(x.e.dialect.begin(patience{latchPatience, idleFirst}), read(text+" FOR UPDATE SKIP LOCKED", &free),
		x.e.dialect.rollback())
	// After the first, so that a session that ends meanwhile does not seem to be locked.
	if err := x.ask(append(all, read(text, &over))...); err != nil {
		return nil, nil, err
	}
	for _, s := range over {
		if !slices.Contains(free, s) && (len(over) < most || len(free) < most || s.deadline < free[len(free)-1].deadline) {
			kept = append(kept, s.id)
		}
	}
	return over, kept, nil
}

// keeper says which transaction keeps the row of a session locked, and what to do about it.
func (x *examination) keeper(session string) (detail, remedy string) {
	if x.e.db.flavour == postgres {
		return x.keeperPostgres(session)
	}
	return x.keeperMySQL()
}

// contradictions looks for rows that contradict each other, as after changes by hand.
func (x *examination) contradictions() lockkeeper.Finding {
	const check = "rows"
	const remedy = "some were removed or changed by hand, or restored concurrent: end claims by lk revoke, never by DELETE"
	var bare, lost, orphans int
	var named string
	err := x.ask(
		x.row(`SELECT count(*), coalesce(min(concat(c.session, '/', c.id)), '') FROM {claims} c
			WHERE c.state <> 'ended' AND NOT EXISTS (SELECT 1 FROM {targets} t WHERE t.session = c.session
			AND t.id = c.id)`, &bare, &named),
		x.row(`SELECT count(*) FROM {claims} c WHERE c.state <> 'ended' AND NOT EXISTS (SELECT 1 FROM {sessions} s
			WHERE s.id = c.session)`, &lost),
		x.row(`SELECT count(*) FROM {targets} t WHERE NOT EXISTS (SELECT 1 FROM {claims} c
			WHERE c.session = t.session AND c.id = t.id)`, &orphans))
	switch {
	case err != nil:
		return x.unseen(check, err)
	case bare > 0:
		return broken(check, fmt.Sprintf("%d claims have no rows of targets, so they exclude nobody, such as %s", bare,
			named), remedy+"; lk revoke --force ends these")
	case lost > 0:
		return doubtful(check, fmt.Sprintf("%d claims have no session: they end when somebody meets them", lost), remedy)
	case orphans > 0:
		return doubtful(check, fmt.Sprintf("%d targets have no claim: they hold up nobody", orphans),
			remedy+"; these can be deleted")
	}
	return fine(check, "they fit together: each claim has its session and its targets")
}

// clock compares the clocks, which nothing depends on.
func (x *examination) clock() lockkeeper.Finding {
	const check = "database's clock"
	began := time.Now()
	now, err := x.now()
	if err != nil {
		return x.unseen(check, err)
	}
	took := time.Since(began)
	ahead := time.Duration(now - began.Add(took/2).UnixNano())
	switch {
	case ahead > took/2+time.Second:
		return fine(check, "%s ahead of this computer's; no lock depends on that, for only the database's counts",
			brief(ahead))
	case -ahead > took/2+time.Second:
		return fine(check, "%s behind this computer's; no lock depends on that, for only the database's counts",
			brief(-ahead))
	}
	return fine(check, "the same as this computer's, as far as can be told; only the database's counts")
}
