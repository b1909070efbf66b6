package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

const placesHelp = `
The place or the hold belongs to the name that --as gives, at exactly these paths,
and not to a process: any later command with the same name and paths goes on with
it. Without a repeat (lk grab, lk renew, or lk keep beside it) it ends after the
TTL, so that a job that crashed is in nobody's way for long. Two jobs that must
not share a hold need two names: put the number of the run into it.`

// placeOptions are what the verbs on places share: whose it is, and where.
type placeOptions struct {
	as           string
	paths        []lockkeeper.Path
	ttl, holdFor time.Duration
	conflictCode int
	asJSON       bool
}

func newPlaceOptions() placeOptions {
	return placeOptions{ttl: grab.DefaultTTL, conflictCode: exitNotAcquired}
}

func (o *placeOptions) addName(cmd *cobra.Command, a *app) {
	cmd.Flags().StringVar(&o.as, "as", "", "the name that has it, 1 to 128 bytes (required)")
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "say nothing on stderr but what went wrong")
}

func (o *placeOptions) addTTL(cmd *cobra.Command, bad *problems) {
	addSpan(cmd, bad, &o.ttl, "ttl", lockkeeper.MinTTL,
		"it ends D after the last repeat, and never sooner than an earlier one said")
}

func (o *placeOptions) addAnswer(cmd *cobra.Command, bad *problems) {
	f := cmd.Flags()
	addSpan(cmd, bad, &o.holdFor, "for", lockkeeper.MinTTL,
		"hold for D without a repeat, such as 90m or 2d; others are told so")
	f.BoolVar(&o.asJSON, "json", false, "print the claim as one JSON object, with the token of a hold")
	f.VarP(number{&o.conflictCode, bad, "-E takes an exit code, 0 to 255, not %q"}, "conflict-exit-code", "E",
		"exit code of \"wait\"")
}

// check reads the paths and collects everything that is wrong with them and with
// the flags of this struct.
func (o *placeOptions) check(cmd *cobra.Command, args []string, bad *problems) {
	if !cmd.Flags().Changed("as") {
		bad.addf("no --as: say who has it, by a name that no other job has, such as --as \"$GITHUB_RUN_ID-$GITHUB_JOB\"")
	} else if strings.TrimSpace(o.as) == "" {
		bad.addf("--as is empty: is the variable in it set?")
	}
	if cmd.ArgsLenAtDash() >= 0 {
		bad.addf("%s runs no command; lk run does: lk run PATH -- COMMAND", cmd.CommandPath())
		return
	}
	if len(args) == 0 {
		bad.addf("no PATH: name what to hold, as in: %s mydatabase/mytest --as ci-17", cmd.CommandPath())
	}
	for _, text := range args {
		if path, err := lockkeeper.ParsePath(text); err != nil {
			bad.add(err)
		} else {
			o.paths = append(o.paths, path)
		}
	}
	if o.conflictCode < 0 || o.conflictCode > 255 {
		bad.addf("exit code %d is out of range: 0 to 255", o.conflictCode)
	}
}

// checkRanges lets the package grab say what is out of range. targets are those
// of the paths.
func (o *placeOptions) checkRanges(r grab.Request, bad *problems) {
	if r.As = o.as; strings.TrimSpace(r.As) == "" {
		r.As = "x" // told already
	}
	if len(r.Targets) == 0 {
		for _, p := range o.paths {
			r.Targets = append(r.Targets, lockkeeper.Target{Path: p, Mode: lockkeeper.ModeExclusive})
		}
	}
	r.Terms = grab.Terms{TTL: o.ttl, For: o.holdFor}
	if len(r.Targets) > 0 {
		bad.add(r.Check())
	}
}

func (o *placeOptions) name() grab.Name   { return grab.Name{As: o.as, Paths: o.paths} }
func (o *placeOptions) terms() grab.Terms { return grab.Terms{TTL: o.ttl, For: o.holdFor} }

// contest describes the paths that the name wants, for messages.
func (o *placeOptions) contest() contest { return contest{wanted: o.paths} }

// what names the paths in messages: the first, and how many more.
func (o *placeOptions) what() string { return o.contest().all() }

// grabOptions are the flags of lk grab.
type grabOptions struct {
	placeOptions
	shared       bool
	limit, units int
	wait         time.Duration
	note, link   string
	priority     int
	try          bool
	fence        string
	token        grab.Token // parsed from fence; zero without --fence
	targets      []lockkeeper.Target
}

func (a *app) newGrab() *cobra.Command {
	o := &grabOptions{placeOptions: newPlaceOptions(), units: 1}
	cmd := &cobra.Command{
		Use:   "grab PATH... --as NAME",
		Short: "Take locks for a name, or a place in line",
		Long: `Take locks for a name, or a place in line: PATH and all that is below it, alone,
or shared with others (-s), or for a limited number of them (-n). Several paths
are taken together or not at all. Grab the same again to keep it.

It prints "ok FENCE" (and the slot of one unit under -n) and exits 0 if the name
holds it, or "wait PLACE" and exits 75 if it waits in line; stderr names the holder.
Without --wait it does not wait: its place lasts for its TTL and may become a hold
meanwhile; then the next lk grab prints ok. With --try it takes no place; if the lock
is taken, it prints nothing on stdout.

--fence continues the hold for which an earlier lk grab printed that fence, and makes
no claim. If the name no longer has that hold, lk exits 76, also when repeated. Use
--fence or lk renew in a script that must not continue after a loss.

With --wait it waits for at most D. If the wait fails or a signal ends it, lk gives
back the place that it took, prints no place, and exits 75; a place that an earlier
lk grab took stays. It fails at once if the lock will not be free within D.
` + placesHelp + `

Exit codes:
  0    ok
  75   wait, or it was not free in time (-E names another code)
  76   lost: the name has no hold with that --fence
  2    bad usage; 69 the engine can't be reached; 77 denied`,
		Example: `  # in the first step of a CI job: wait in line, and hold it for the steps after
  lk grab testsite --as "run-$GITHUB_RUN_ID" --wait 30m --for 1h || exit

  # share it with others who share it
  lk grab -s testsite --as "check-$CI_JOB_ID"

  # nobody deploys for two days, and nobody needs to keep it alive
  lk grab deploy --as release-freeze --for 2d --note "code freeze"

  # look now and then, and do something else meanwhile
  while lk grab -q db --as "run-$ID"; [ $? = 75 ]; do ./something-else; done`,
		Args: a.checked(func(cmd *cobra.Command, args []string) { o.check(cmd, args, &a.bad) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.grab(cmd.Context(), o) }),
	}
	f := cmd.Flags()
	o.addName(cmd, a)
	o.addTTL(cmd, &a.bad)
	o.addAnswer(cmd, &a.bad)
	f.BoolVarP(&o.shared, "shared", "s", false, "share the paths with others who share them")
	f.VarP(number{&o.limit, &a.bad, "-n takes a number, as in -n 3: at most so many at a time, not %q"},
		"limit", "n", "hold permits: at most N units in use at a time, as this caller sees it")
	f.Var(number{&o.units, &a.bad, "--units takes a number, not %q"}, "units", "with -n: how many units to take")
	addSpan(cmd, &a.bad, &o.wait, "wait", 0, "wait for at most D, such as 90s, 5m or 2h (default: not at all)")
	f.BoolVar(&o.try, "try", false, "take no place in line: if the lock is taken, give up at once")
	f.StringVar(&o.fence, "fence", "", "continue the hold with this `FENCE`, which ok printed, and make no claim")
	f.StringVar(&o.note, "note", "", "what for, for others to read")
	f.StringVar(&o.link, "link", "", "where to look, such as the URL of a CI run")
	f.Var(number{&o.priority, &a.bad, "--priority takes a number, not %q"}, "priority", "higher goes first (default 0)")
	return cmd
}

func (o *grabOptions) check(cmd *cobra.Command, args []string, bad *problems) {
	o.placeOptions.check(cmd, args, bad)
	limited := cmd.Flags().Changed("limit")
	if limited && o.shared {
		bad.addf("-n and -s exclude each other: a limit counts holders, sharing does not")
	}
	if !limited && cmd.Flags().Changed("units") {
		bad.addf("--units goes with -n: of how many are they?")
	}
	o.checkFence(cmd, bad)
	for _, p := range o.paths {
		switch {
		case o.shared:
			o.targets = append(o.targets, lockkeeper.Target{Path: p, Mode: lockkeeper.ModeShared})
		case limited:
			o.targets = append(o.targets, lockkeeper.Target{
				Path:  p,
				Mode:  lockkeeper.ModePermits,
				Units: o.units,
				Limit: o.limit,
			})
		default:
			o.targets = append(o.targets, lockkeeper.Target{Path: p, Mode: lockkeeper.ModeExclusive})
		}
	}
	o.checkRanges(o.request(), bad)
}

// checkFence parses --fence, and checks the flags that exclude --wait.
func (o *grabOptions) checkFence(cmd *cobra.Command, bad *problems) {
	if o.try && o.wait > 0 {
		bad.addf("--try and --wait exclude each other: --try does not wait")
	}
	if !cmd.Flags().Changed("fence") {
		return
	}
	var err error
	if o.token, err = grab.ParseToken(o.fence); err != nil {
		bad.addf("--fence %q is not a fence: give what ok printed, such as 17", o.fence)
	}
	if o.wait > 0 {
		bad.addf("--fence and --wait exclude each other: --fence does not wait")
	}
}

func (o *grabOptions) request() grab.Request {
	return grab.Request{
		As:       o.as,
		Targets:  o.targets,
		Priority: o.priority,
		Note:     o.note,
		Link:     o.link,
		Try:      o.try,
		Terms:    o.terms(),
	}
}

// places opens the engine for verbs on places.
func (a *app) places(ctx context.Context, o *placeOptions, p trial) (*connection, *grab.Reservations, error) {
	c, err := a.reach(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	a.printNotices(c)
	if last := o.as[len(o.as)-1:]; strings.Contains("-_.:/", last) {
		a.note("the name %s ends with %q: is the variable in it set?", o.as, last)
	}
	return c, grab.New(c.engine), nil
}

// grab is lk grab.
func (a *app) grab(ctx context.Context, o *grabOptions) error {
	began := time.Now()
	c, places, err := a.places(ctx, &o.placeOptions, trial{began, o.wait, o.what()})
	if err != nil {
		return err
	}
	defer c.Close()
	if o.token != (grab.Token{}) {
		answer, err := places.Confirm(ctx, o.request(), o.token)
		if err != nil {
			return err
		}
		return a.answer(&o.placeOptions, answer)
	}
	if o.wait == 0 {
		return a.grabNow(ctx, places, o)
	}
	signals := make(chan os.Signal, 16)
	supervise.NotifySignals(signals)
	defer signal.Stop(signals)
	ctx, over := stoppedBy(ctx, signals, anySignal)
	report := newWaitReport(o.contest(), a.noteText, c.Client)
	answer, err := places.Wait(ctx, o.request(), restOf(began, o.wait), func(w grab.Answer) {
		report.changed(ctx, w.Status)
	})
	report.stop()
	if stopped := over(); stopped != nil && answer.State != lockkeeper.Held {
		if answer.State == lockkeeper.Waiting {
			a.note("%s: the place in line is left to its TTL", o.what())
		}
		return stopped
	}
	if err != nil && codeOf(err) == exitNotAcquired {
		return &exit{code: o.conflictCode, say: err}
	}
	if err != nil {
		return err
	}
	if answer.State == lockkeeper.Ended {
		if len(answer.Blockers) == 0 { // the last known blockers
			answer.Blockers, answer.Position = report.last.Blockers, report.last.Position
		}
		return a.gaveUp(o, answer)
	}
	return a.answer(&o.placeOptions, answer)
}

// grabNow is lk grab that does not wait.
func (a *app) grabNow(ctx context.Context, places *grab.Reservations, o *grabOptions) error {
	answer, err := places.Grab(ctx, o.request())
	switch {
	case err != nil:
		return err
	case answer.State == lockkeeper.Ended:
		return a.gaveUp(o, answer)
	}
	if err = a.answer(&o.placeOptions, answer); answer.State == lockkeeper.Waiting && !o.try {
		a.note("lk grab does not wait: its place is kept for %s (--wait D waits, --try takes "+
			"no place)", duration.Text(answer.TTL))
	}
	return err
}

// gaveUp reports a failed try, or a failed wait, that left no place. It prints nothing on
// stdout, except with --json.
func (a *app) gaveUp(o *grabOptions, answer grab.Answer) error {
	a.noteLost(&o.placeOptions, answer)
	c := o.contest()
	name, state := c.name(answer.Blockers), waitLine(answer.Status)+c.others()
	text := fmt.Sprintf("%s is still taken after %s: %s", name, duration.Exact(o.wait), state)
	switch {
	case o.try:
		text = fmt.Sprintf("%s is taken: %s", name, state)
	case len(answer.OwnHolds) > 0:
		text = fmt.Sprintf("%s: %s", o.what(), o.itself(answer))
	case answer.Hopeless:
		text = fmt.Sprintf("%s is not free in time: %s", name, state)
	}
	a.noteText(text)
	if o.asJSON {
		if err := writeJSON(a.stdout, answer.Status); err != nil {
			return err
		}
	}
	return &exit{code: o.conflictCode}
}

// itself says that a name waits for what it holds itself, and where.
func (o *placeOptions) itself(answer grab.Answer) string {
	var texts []string
	for _, p := range answer.OwnHolds {
		texts = append(texts, string(p))
	}
	return fmt.Sprintf("held by %s itself (lk grab %s --as %s), which is another owner with other paths: release that "+
		"first", o.as, strings.Join(texts, " "), o.as)
}

// noteLost tells what became of the hold that the name had before.
func (a *app) noteLost(o *placeOptions, answer grab.Answer) {
	if answer.Lost != nil {
		a.note("the hold that %s had of %s before is gone: %s", o.as, o.what(), answer.Lost)
	}
}

// answer prints what a name has: "ok FENCE" or "wait PLACE", and for people who
// is in the way.
func (a *app) answer(o *placeOptions, answer grab.Answer) error {
	a.noteLost(o, answer)
	waiting := answer.State == lockkeeper.Waiting
	switch {
	case waiting && len(answer.OwnHolds) > 0:
		a.note("%s: %s", o.what(), o.itself(answer))
	case waiting && answer.Hopeless:
		c := o.contest()
		a.note("%s is not free in time: %s", c.name(answer.Blockers), waitLine(answer.Status)+c.others())
	case waiting:
		a.noteText(o.contest().line(answer.Status))
	case answer.Asked != nil:
		a.note("%s: %s", o.what(), answer.Asked)
	}
	var err error
	switch {
	case o.asJSON:
		err = writeJSON(a.stdout, jsonAnswer(answer))
	default:
		_, err = fmt.Fprintln(a.stdout, answerLine(answer))
	}
	if err == nil && waiting {
		return &exit{code: o.conflictCode}
	}
	return err
}

// answerLine is an answer for scripts: "ok TOKEN", "ok TOKEN SLOT" for one permit,
// or "wait PLACE".
func answerLine(answer grab.Answer) string {
	switch {
	case answer.State == lockkeeper.Waiting:
		return fmt.Sprintf("wait %d", answer.Position)
	case len(answer.Grants) == 1 && answer.Grants[0].Slot > 0:
		return fmt.Sprintf("ok %s %d", answer.Token, answer.Grants[0].Slot)
	}
	return fmt.Sprintf("ok %s", answer.Token)
}

// jsonAnswer is an answer in JSON: the claim, and the token of a hold.
func jsonAnswer(answer grab.Answer) any {
	if answer.State != lockkeeper.Held {
		return answer.Status
	}
	return heldAnswer{answer}
}

// heldAnswer is the claim of a hold, with its token.
type heldAnswer struct{ grab.Answer }

// MarshalJSON implements json.Marshaler.
func (h heldAnswer) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(h.Status)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(text[:len(text)-1], `,"token":%q}`, h.Token), nil
}

// grabbedAs says, of a run that names itself as, that a hold in its way was grabbed
// for the same name, which is another owner; else it is empty.
func grabbedAs(as string, blocked []lockkeeper.Blocker) string {
	for _, b := range blocked {
		if b.As == as && grab.IsGrabbed(b.Ref) {
			return fmt.Sprintf("; %s has it by lk grab, which lk run does not join", as)
		}
	}
	return ""
}
