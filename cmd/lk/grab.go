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

const reservationHelp = `
A reservation (a hold, or a position in line) belongs to the name of --as at exactly these
paths, and not to a process: a later command with the same name and paths continues it.
Unless it is renewed (lk grab, lk renew, lk keep), it ends after its TTL, so a crashed job
does not block others for long. Jobs that must not share a hold need different names: put
the number of the run into the name.`

// reservationOptions are the flags and arguments that the verbs on reservations share.
type reservationOptions struct {
	as           string
	paths        []lockkeeper.Path
	ttl, holdFor time.Duration
	conflictCode int
	asJSON       bool
}

func newReservationOptions() reservationOptions {
	return reservationOptions{ttl: grab.DefaultTTL, conflictCode: exitNotAcquired}
}

func (o *reservationOptions) addName(cmd *cobra.Command, a *app) {
	cmd.Flags().StringVar(&o.as, "as", "", "name of the owner, 1 to 128 bytes (required)")
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print only errors on stderr")
}

func (o *reservationOptions) addTTL(cmd *cobra.Command, bad *problems) {
	addSpan(cmd, bad, &o.ttl, "ttl", lockkeeper.MinTTL,
		"it ends D after the last renewal, never earlier than announced before")
}

func (o *reservationOptions) addAnswer(cmd *cobra.Command, bad *problems) {
	f := cmd.Flags()
	addSpan(cmd, bad, &o.holdFor, "for", lockkeeper.MinTTL,
		"hold for D without renewals, such as 90m or 2d; others see that")
	f.BoolVar(&o.asJSON, "json", false, "print the claim as one JSON object, with the token of a hold")
	f.VarP(number{&o.conflictCode, bad, "-E takes an exit code, 0 to 255, not %q"}, "conflict-exit-code", "E",
		"exit code of \"wait\"")
}

// check reads the paths and collects everything that is wrong with them and with
// the flags of this struct.
func (o *reservationOptions) check(cmd *cobra.Command, args []string, bad *problems) {
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

// checkRanges collects the values that the package grab refuses. targets are those of the paths.
func (o *reservationOptions) checkRanges(r grab.Request, bad *problems) {
	if r.As = o.as; strings.TrimSpace(r.As) == "" {
		r.As = "x" // reported already
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

func (o *reservationOptions) name() grab.Name   { return grab.Name{As: o.as, Paths: o.paths} }
func (o *reservationOptions) terms() grab.Terms { return grab.Terms{TTL: o.ttl, For: o.holdFor} }

// contest describes the paths that the name wants, for messages.
func (o *reservationOptions) contest() contest { return contest{wanted: o.paths} }

// what names the paths in messages: the first, and how many more.
func (o *reservationOptions) what() string { return o.contest().all() }

// grabOptions are the flags of lk grab.
type grabOptions struct {
	reservationOptions
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
	o := &grabOptions{reservationOptions: newReservationOptions(), units: 1}
	cmd := &cobra.Command{
		Use:   "grab PATH... --as NAME",
		Short: "Take locks for a name, or a position in line",
		Long: `Take locks for a name, or a position in line. Each PATH is locked with all paths below it:
exclusively, shared (-s), or with a limit (-n). lk takes several paths together or not at
all. Grab the same again to keep it.

lk prints "ok FENCE" (and the slot of one permit) and exits 0 if the name holds the lock, or
"wait POSITION" and exits 75 if it waits; stderr names the holder. lk does not wait without
--wait: the reservation lives for its TTL and may become a hold meanwhile; then the next
lk grab prints ok. With --try lk makes no reservation; if the lock is taken, it prints
nothing on stdout.

--fence continues the hold for which an earlier lk grab printed that fence, and makes no
claim. If the name no longer has that hold, lk exits 76, also when repeated. Use --fence or
lk renew in a script that must not continue after a loss.

--wait waits at most D. If the wait fails or a signal ends it, lk withdraws a reservation
that it made, prints no position, and exits 75; an earlier reservation stays. It fails at
once if the lock will not be free within D.` + reservationHelp + `

Exit codes:
  0    ok
  75   wait, or it was not free in time (-E names another code)
  76   lost: the name has no hold with that --fence
  2    bad usage; 69 the engine can't be reached; 77 denied`,
		Example: `  # in the first step of a CI job: wait in line, and hold it for the steps after
  lk grab testsite --as "run-$GITHUB_RUN_ID" --wait 30m --for 1h || exit

  # share a lock with other readers
  lk grab -s testsite --as "check-$CI_JOB_ID"

  # hold for two days, without renewals
  lk grab deploy --as release-freeze --for 2d --note "code freeze"

  # poll, and do something else meanwhile
  while lk grab -q db --as "run-$ID"; [ $? = 75 ]; do ./something-else; done`,
		Args: a.checked(func(cmd *cobra.Command, args []string) { o.check(cmd, args, &a.bad) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.grab(cmd.Context(), o) }),
	}
	f := cmd.Flags()
	o.addName(cmd, a)
	o.addTTL(cmd, &a.bad)
	o.addAnswer(cmd, &a.bad)
	f.BoolVarP(&o.shared, "shared", "s", false, "lock every PATH in shared mode")
	f.VarP(number{&o.limit, &a.bad, "-n takes a number, as in -n 3: at most so many at a time, not %q"},
		"limit", "n", "take a permit of each PATH: at most N are in use at a time, by this caller's limit")
	f.Var(number{&o.units, &a.bad, "--units takes a number, not %q"}, "units", "with -n: the number of permits to take")
	addSpan(cmd, &a.bad, &o.wait, "wait", 0, "wait at most D, such as 90s, 5m or 2h (default: do not wait)")
	f.BoolVar(&o.try, "try", false, "make no reservation: fail at once if the lock is taken")
	f.StringVar(&o.fence, "fence", "", "continue the hold with this `FENCE`, which ok printed, and make no claim")
	f.StringVar(&o.note, "note", "", "purpose, for others")
	f.StringVar(&o.link, "link", "", "link, for others, such as the URL of a CI run")
	f.Var(number{&o.priority, &a.bad, "--priority takes a number, not %q"}, "priority",
		"higher is granted first (default 0)")
	return cmd
}

func (o *grabOptions) check(cmd *cobra.Command, args []string, bad *problems) {
	o.reservationOptions.check(cmd, args, bad)
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

// openReservations opens the engine for verbs on reservations.
func (a *app) openReservations(
	ctx context.Context, o *reservationOptions, p trial,
) (*connection, *grab.Reservations, error) {
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
	c, reservations, err := a.openReservations(ctx, &o.reservationOptions, trial{began, o.wait, o.what()})
	if err != nil {
		return err
	}
	defer c.Close()
	if o.token != (grab.Token{}) {
		answer, err := reservations.Confirm(ctx, o.request(), o.token)
		if err != nil {
			return err
		}
		return a.answer(&o.reservationOptions, answer)
	}
	if o.wait == 0 {
		return a.grabNow(ctx, reservations, o)
	}
	signals := make(chan os.Signal, 16)
	supervise.NotifySignals(signals)
	defer signal.Stop(signals)
	ctx, over := stoppedBy(ctx, signals, anySignal)
	report := newWaitReport(o.contest(), a.noteText, c.Client)
	answer, err := reservations.Wait(ctx, o.request(), restOf(began, o.wait), func(w grab.Answer) {
		report.changed(ctx, w.Status)
	})
	report.stop()
	if stopped := over(); stopped != nil && answer.State != lockkeeper.Held {
		if answer.State == lockkeeper.Waiting {
			a.note("%s: the reservation ends with its TTL", o.what())
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
	return a.answer(&o.reservationOptions, answer)
}

// grabNow is lk grab without --wait.
func (a *app) grabNow(ctx context.Context, reservations *grab.Reservations, o *grabOptions) error {
	answer, err := reservations.Grab(ctx, o.request())
	switch {
	case err != nil:
		return err
	case answer.State == lockkeeper.Ended:
		return a.gaveUp(o, answer)
	}
	if err = a.answer(&o.reservationOptions, answer); answer.State == lockkeeper.Waiting && !o.try {
		a.note("lk grab does not wait: its reservation lives for %s (--wait D waits, --try makes "+
			"none)", duration.Text(answer.TTL))
	}
	return err
}

// gaveUp reports a failed try or wait that left no reservation. It prints nothing on stdout, except
// with --json.
func (a *app) gaveUp(o *grabOptions, answer grab.Answer) error {
	a.noteLost(&o.reservationOptions, answer)
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

// itself says that a name waits for its own hold at other paths.
func (o *reservationOptions) itself(answer grab.Answer) string {
	var texts []string
	for _, p := range answer.OwnHolds {
		texts = append(texts, string(p))
	}
	return fmt.Sprintf("held by %s itself (lk grab %s --as %s), which is another owner with other paths: release that "+
		"first", o.as, strings.Join(texts, " "), o.as)
}

// noteLost prints why the name lost its previous hold, if it did.
func (a *app) noteLost(o *reservationOptions, answer grab.Answer) {
	if answer.Lost != nil {
		a.note("the hold that %s had of %s before is gone: %s", o.as, o.what(), answer.Lost)
	}
}

// answer prints the answerLine of a reservation, or its JSON, on stdout, and the blockers for
// people on stderr.
func (a *app) answer(o *reservationOptions, answer grab.Answer) error {
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

// answerLine is an answer for scripts: "ok TOKEN", "ok TOKEN SLOT" for one permit, or "wait
// POSITION".
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

// grabbedAs returns a hint if a hold that blocks a run was made by lk grab under the name of the
// run: equal names do not make them one owner. Else it is empty.
func grabbedAs(as string, blocked []lockkeeper.Blocker) string {
	for _, b := range blocked {
		if b.As == as && grab.IsGrabbed(b.Ref) {
			return fmt.Sprintf("; %s has it by lk grab, which lk run does not join", as)
		}
	}
	return ""
}
