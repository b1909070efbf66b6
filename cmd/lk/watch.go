package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

// filePause is the pause between two checks for a file that does not exist yet.
const filePause = 200 * time.Millisecond

func (a *app) newWatch() *cobra.Command {
	var path lockkeeper.Path
	var asJSON bool
	cmd := &cobra.Command{
		Use:        "watch [PATH]",
		SuggestFor: []string{"follow", "tail", "events", "monitor"},
		Short:      "Print changes of locks as they happen",
		Long: `Print a line for each change of a lock: granted, waiting, asked to yield, released, lost, and
why. lk first prints the present state: of everything, or at PATH, above it and below it.
Rapid changes may be merged into one line.

Events: waits, holds, upgrades (shared, waits for exclusive), asked (to yield), kept (no
longer asked), released, lost, refused, left (the line), frozen, thawed.

Ctrl-C ends it, with exit code 130. If a server can't be reached, lk waits for it. Times
are those of this computer.`,
		Example: `  # all changes from now on
  lk watch

  # at one path, above it and below it
  lk watch mydatabase/mytest

  # lost locks, for a log
  lk watch --json | jq -c 'select(.event == "lost")'`,
		Args: a.checked(func(_ *cobra.Command, args []string) { path = a.onePath(args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			return a.watch(cmd.Context(), path, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line: time, event, text, and the claim as status")
	return cmd
}

// watch prints changes until it is interrupted.
func (a *app) watch(ctx context.Context, path lockkeeper.Path, asJSON bool) error {
	if !signal.Ignored(os.Interrupt) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
	}
	client, err := a.awaitFile(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	w := watcher{to: a.stdout, asJSON: asJSON, seen: make(map[subject]sighting)}
	for {
		err := w.follow(ctx, client.Client, path)
		if ctx.Err() != nil {
			return interrupted(os.Interrupt)
		}
		if client.Guarantees().Reach != lockkeeper.OnNetwork || !errors.Is(err, lockkeeper.ErrUnavailable) {
			return err
		}
		fmt.Fprintf(a.stderr, "lk: %s; lk watch goes on when it can be reached\n", words(err))
		if err := w.comeBack(ctx, client.Client, path); err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() == nil {
			fmt.Fprintln(a.stderr, "lk: it can be reached again")
		}
	}
}

// follow prints the claims and all their changes, until ctx ends or the list fails. It follows no path at which
// the identity would never see a change.
func (w *watcher) follow(ctx context.Context, client *lockkeeper.Client, path lockkeeper.Path) error {
	if err := listing.DeniedAt(ctx, client, path); err != nil {
		return err
	}
	for status, err := range client.List(ctx, lockkeeper.Query{Meets: path, Follow: true}) {
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = w.see(status, time.Now())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// networkPause is the pause between two attempts to reach a lost server.
const networkPause = time.Second

// comeBack waits until the server can be reached again, and prints the ends of claims that have
// ended meanwhile: follow will not receive these.
func (w *watcher) comeBack(ctx context.Context, client *lockkeeper.Client, path lockkeeper.Path) error {
	tick := time.NewTicker(networkPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		there := map[subject]bool{}
		var err error
		for status, listed := range client.List(ctx, lockkeeper.Query{Meets: path, Brief: true}) {
			there[subjectOf(status)], err = true, listed
		}
		if err == nil {
			return w.missing(there, time.Now())
		}
		if !errors.Is(err, lockkeeper.ErrUnavailable) {
			return err
		}
	}
}

// missing prints the end of every seen claim that is not in there. The reason is unknown.
func (w *watcher) missing(there map[subject]bool, now time.Time) error {
	var ended []lockkeeper.Status
	for about, s := range w.seen {
		if !there[about] {
			s.State, s.Reason = lockkeeper.Ended, lockkeeper.NoReason
			ended = append(ended, s.Status)
		}
	}
	slices.SortFunc(ended, func(a, b lockkeeper.Status) int { return cmp.Compare(a.Change, b.Change) })
	for _, s := range ended {
		if err := w.see(s, now); err != nil {
			return err
		}
	}
	return nil
}

// awaitFile connects to the engine when its file exists: read-only verbs do not create it.
func (a *app) awaitFile(ctx context.Context) (*connection, error) {
	a.makesNothing, a.readOnly = true, true
	if file := a.missingFile(); file != "" {
		fmt.Fprintf(a.stderr, "lk: nothing is held yet: the first lock creates %s\n", file)
	}
	tick := time.NewTicker(filePause)
	defer tick.Stop()
	for {
		if a.missingFile() == "" {
			client, err := a.connect(ctx)
			if !errors.Is(err, fs.ErrNotExist) {
				return client, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, interrupted(os.Interrupt)
		}
	}
}

// subject is what a change is about: a claim, or one path of a freeze.
type subject struct {
	ref  lockkeeper.Ref
	path lockkeeper.Path
}

func subjectOf(s lockkeeper.Status) subject {
	if isFreeze(s) {
		return subject{s.Ref, s.Grants[0].Path}
	}
	return subject{ref: s.Ref}
}

// sighting is a status and when it was seen.
type sighting struct {
	lockkeeper.Status
	at time.Time
}

// age returns the Age of the status at the time now.
func (s sighting) age(now time.Time) time.Duration { return s.Age + now.Sub(s.at) }

// watcher prints changes of claims, each once.
type watcher struct {
	to     io.Writer
	asJSON bool
	seen   map[subject]sighting
}

// eventJSON is the JSON form of a change.
type eventJSON struct {
	Time   time.Time         `json:"time"`
	Event  string            `json:"event"`
	Text   string            `json:"text"`
	Status lockkeeper.Status `json:"status"`
}

func writeEvent(to io.Writer, now time.Time, event, text string, s lockkeeper.Status) error {
	return json.NewEncoder(to).Encode(eventJSON{now, event, text, s})
}

// see prints the change of a claim since its last status, if there is one.
func (w *watcher) see(s lockkeeper.Status, now time.Time) error {
	about := subjectOf(s)
	before, known := w.seen[about]
	if s.State == lockkeeper.Ended {
		delete(w.seen, about)
	} else {
		w.seen[about] = sighting{s, now}
	}
	event, text := w.change(before, known, s, now)
	if event == "" {
		return nil
	}
	if w.asJSON {
		return writeEvent(w.to, now, event, text, s)
	}
	_, err := fmt.Fprintf(w.to, "%s %s\n", now.Format(time.TimeOnly), text)
	return err
}

// isFreeze reports whether s is a freeze. Freezes have no change numbers, so this holds after their
// end too.
func isFreeze(s lockkeeper.Status) bool {
	return len(s.Grants) > 0 && (s.State == lockkeeper.Freezing || s.State == lockkeeper.Ended && s.Change == 0)
}

// change returns the difference between two statuses as a word and as a sentence; both are empty if
// it does not matter to people.
func (w *watcher) change(before sighting, known bool, s lockkeeper.Status, now time.Time) (event, text string) {
	name, what := who(s.Label, s.Ref), briefTargets(s)
	switch {
	case isFreeze(s) && s.State == lockkeeper.Ended:
		return "thawed", frozenPath(s.Grants[0].Path) + " is not frozen any more"
	case isFreeze(s):
		if known {
			return "", ""
		}
		return "frozen", holdText(s)
	case s.State == lockkeeper.Ended:
		return endOf(s, before, known, now)
	case s.State == lockkeeper.Waiting:
		if known && waitKey(before.Status) == waitKey(s) {
			return "", ""
		}
		place := positionText(s)
		if place != "" {
			place += " "
		}
		return "waits", fmt.Sprintf("%s waits %sfor %s%s", name, place, what, reasonsOf(s))
	case !known || before.State != lockkeeper.Held || before.Fence != s.Fence:
		facts := fmt.Sprintf("fence %d", s.Fence)
		if known {
			facts += ", waited " + duration.Elapsed(before.age(now)-s.Age)
		} else if s.Age >= time.Second {
			facts += ", for " + duration.Elapsed(s.Age)
		}
		return "holds", fmt.Sprintf("%s holds %s (%s)%s", name, what, facts, about(s.Label))
	case s.Lapsed:
		return "", "" // its client no longer uses it, and its end comes soon: requests to yield don't matter
	case askKey(before.Asked) != askKey(s.Asked) && s.Asked != nil:
		return "asked", fmt.Sprintf("%s is asked to yield %s%s", name, what, askText(s.Asked))
	case askKey(before.Asked) != askKey(s.Asked):
		return "kept", fmt.Sprintf("%s may keep %s: it is not asked to yield any longer", name, what)
	case s.Converting && !before.Converting:
		return "upgrades", fmt.Sprintf("%s waits to have %s alone%s", name, what, reasonsOf(s))
	}
	return "", ""
}

// reasonsOf returns ": held by ci-17 ..."; empty if no reason is known.
func reasonsOf(s lockkeeper.Status) string {
	s.Position = 0
	if text := waitLine(s); len(s.Blockers)+len(s.Waits) > 0 {
		return ": " + text
	}
	return ""
}

// endOf describes how a claim ended.
func endOf(s lockkeeper.Status, before sighting, known bool, now time.Time) (event, text string) {
	name, what := who(s.Label, s.Ref), briefTargets(s)
	since := ""
	if known && before.State == lockkeeper.Held {
		since = " (held " + duration.Elapsed(before.age(now)) + ")"
	} else if known && s.Fence == 0 {
		since = " (waited " + duration.Elapsed(before.age(now)) + ")"
	}
	why := s.Reason.String()
	if s.Text != "" {
		why += ": " + s.Text
	}
	held := s.Fence != 0
	switch {
	case held && s.Reason == lockkeeper.Released:
		return "released", fmt.Sprintf("%s released %s%s", name, what, since)
	case held && s.Reason == lockkeeper.Yielded:
		return "released", fmt.Sprintf("%s released %s, as it was asked to%s", name, what, since)
	case held && s.Reason == lockkeeper.NoReason:
		return "released", fmt.Sprintf("%s holds %s no longer%s", name, what, since)
	case held:
		return "lost", fmt.Sprintf("%s lost %s: %s%s", name, what, why, since)
	case s.Reason == lockkeeper.TimedOut:
		return "refused", fmt.Sprintf("%s did not get %s in its time%s", name, what, since)
	case s.Reason == lockkeeper.Cancelled || s.Reason == lockkeeper.NoReason:
		return "left", fmt.Sprintf("%s waits for %s no longer%s", name, what, since)
	}
	return "refused", fmt.Sprintf("%s does not get %s: %s%s", name, what, why, since)
}

// askKey is equal for requests whose askText differs in durations alone.
func askKey(a *lockkeeper.Asked) string {
	if a == nil {
		return ""
	}
	return fmt.Sprint(a.By, a.Reason, a.Label)
}

// askText names the claim or operator that asks a holder to yield, and the consequence if it does
// not: ", by the operator ops (stuck): it is taken in 30s".
func askText(a *lockkeeper.Asked) string {
	var text string
	switch {
	case a.Reason == lockkeeper.Overdue:
		text = ", since it is held for too long"
	case a.Reason == lockkeeper.Revoked:
		text = ", by the operator " + a.As + about(a.Label)
	default:
		text = ", by " + who(a.Label, a.By) + about(a.Label)
	}
	if a.Left != lockkeeper.Forever {
		text += ": else it is taken in " + duration.Remaining(a.Left)
	}
	return text
}

// briefTargets lists the targets of a claim; exclusive ones have only their path.
func briefTargets(s lockkeeper.Status) string {
	texts := make([]string, len(s.Grants))
	for i, g := range s.Grants {
		if texts[i] = g.String(); g.Mode == lockkeeper.ModeExclusive {
			texts[i] = string(g.Path)
		}
	}
	return strings.Join(texts, ", ")
}
