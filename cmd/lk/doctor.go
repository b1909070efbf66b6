package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// doctorPatience bounds how long lk doctor tries to open the engine.
const doctorPatience = 15 * time.Second

func (a *app) newDoctor() *cobra.Command {
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use:        "doctor",
		SuggestFor: []string{"check", "diagnose", "info", "config"},
		Short:      "Check the set-up, and print remedies",
		Long: `Check the set-up: which engine lk uses and why, whether lk can open it, and problems of the
engine and of this environment. If all is well, lk prints one line. Otherwise it lists
what is doubtful (works, but less reliably) and what is broken, with a remedy for each.
With -v it lists every check, and the guarantees of the engine.

lk doctor changes nothing and creates no file. The exit code is 1 if anything is broken.`,
		Example: `  # why does it not work here?
  lk doctor

  # and with that engine?
  lk doctor --engine sqlite:/var/lib/myapp/locks.db

  # in a script
  lk doctor --json | jq -r 'select(.grade == "broken").remedy'`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) {
			if len(args) > 0 {
				a.bad.addf("%s: lk doctor takes none; the engine to look at is named by --engine", plural(len(args), "argument"))
			}
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorPatience)
			defer cancel()
			d := &doctor{app: a}
			d.examine(ctx)
			if asJSON {
				return d.reportJSON(a.stdout)
			}
			return d.report(a.stdout, verbose)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"print every check as one JSON object a line: check, grade, detail, remedy")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list every check")
	return cmd
}

// doctor collects findings.
type doctor struct {
	app    *app
	engine string // its URL, and why lk uses it
	list   []lockkeeper.Finding
}

func (d *doctor) fine(check, format string, args ...any) {
	d.list = append(d.list, lockkeeper.Finding{Check: check, Grade: lockkeeper.Fine, Detail: fmt.Sprintf(format, args...)})
}

func (d *doctor) wrong(grade lockkeeper.Grade, check, detail, remedy string) {
	d.list = append(d.list, lockkeeper.Finding{Check: check, Grade: grade, Detail: detail, Remedy: remedy})
}

// examine runs all checks, those of the engine first.
func (d *doctor) examine(ctx context.Context) {
	if url, ok := d.choice(); ok {
		client := d.open(ctx, url)
		d.examineURL(url)
		d.parent(ctx, client, url)
		if client != nil {
			client.Close()
		}
	}
	d.variables()
	d.state()
	d.ci()
	d.system()
	d.programs()
	d.clock()
}

// choice checks the choice of the engine, and records its source.
func (d *doctor) choice() (url string, ok bool) {
	a := d.app
	a.checkEngine()
	if len(a.bad.list) > 0 {
		remedy := "name another engine, as in --engine sqlite:/var/lib/myapp/locks.db"
		if a.engineSource() == engineVariable {
			remedy = "correct " + engineVariable + " or unset it; lk help engines says what it can be"
		}
		d.wrong(lockkeeper.Broken, "engine", a.bad.Error(), remedy)
		return "", false
	}
	url, _, err := a.chooseURL()
	if err != nil {
		d.wrong(lockkeeper.Broken, "engine", err.Error(), homeRemedy)
		return "", false
	}
	d.engine = lockkeeper.RedactURL(url) + ", by " + a.engineSource()
	if named := os.Getenv(engineVariable); a.engineSource() == engineVariable && named != url {
		others := "locks"
		if fileOf(url) == "" {
			others = "files"
		}
		d.wrong(lockkeeper.Doubtful, "engine", fmt.Sprintf("%s is %s, which is relative: another folder, other %s (here: %s)",
			engineVariable, lockkeeper.RedactURL(named), others, lockkeeper.RedactURL(url)),
			"set it to "+lockkeeper.RedactURL(url)+", or to other absolute files")
		return url, true
	}
	d.fine("engine", "%s", d.engine)
	return url, true
}

// open opens the engine, if it exists, and records its guarantees. It returns nil if the engine
// can't be opened.
func (d *doctor) open(ctx context.Context, url string) *connection {
	if file := d.app.missingFile(); file != "" {
		d.missing(file)
		return nil
	}
	d.app.makesNothing, d.app.readOnly = true, true
	client, err := d.app.connect(ctx)
	if errors.Is(err, lockkeeper.ErrNoTables) && lookingURL(url) != url {
		if hasTables(url) {
			d.fine("opening it", "the database has no tables of lockkeeper yet; the first lock makes them, or lk migrate")
		} else {
			d.fine("opening it", "the servers keep no locks yet; the first lock makes a set of them")
		}
		return nil
	}
	if err != nil {
		d.wrong(lockkeeper.Broken, "opening it", words(err), d.openRemedy(err, url))
		return nil
	}
	n, old := 0, false
	for _, err := range client.List(ctx, lockkeeper.Query{Brief: true, Stale: true}) {
		var ago time.Duration
		switch ago, old = lockkeeper.Stale(err); {
		case old:
			d.wrong(lockkeeper.Broken, "reading it", fmt.Sprintf("its lists are %s old: %s", duration.Elapsed(ago), err),
				staleRemedy(err))
		case err != nil:
			d.wrong(lockkeeper.Broken, "reading it", words(err), d.openRemedy(err, url))
			return client
		default:
			n++
		}
	}
	if !old {
		d.fine("opening it", "it answers, and lists %s", plural(n, "claim"))
	}
	d.promises(client.Guarantees(), url)
	if client.Guarantees().Reach == lockkeeper.OnNetwork {
		d.roundTrips(ctx, client, url)
		d.server(ctx, client)
	}
	if e, ok := client.engine.(lockkeeper.Examiner); ok {
		d.list = append(d.list, e.Examine(ctx)...)
	}
	return client
}

// quorumRemedy is the remedy for a cluster without a leader.
const quorumRemedy = "start the nodes that are down, or mend the network between them (lk cluster ls on a machine " +
	"with a node names them); nothing is lost meanwhile"

// staleRemedy is the remedy for lists that are old because of err.
func staleRemedy(err error) string {
	if errors.Is(err, lockkeeper.QuorumLost) {
		return quorumRemedy
	}
	return diskRemedy
}

// diskRemedy is the remedy for a full disk that keeps the locks.
const diskRemedy = "make room on that disk: then it continues by itself; holders keep their locks meanwhile"

// promises records the guarantees that the engine declares.
func (d *doctor) promises(g lockkeeper.Guarantees, url string) {
	who, whose := fmt.Sprintf("everybody within %s who names this engine", g.Reach), ""
	switch {
	case g.Reach == lockkeeper.OnMachine && fileOf(url) != "":
		who = "everybody on this machine who uses this file"
	case g.Reach == lockkeeper.OnNetwork:
		who, whose = "everybody who names this server, on any machine", "at the server, "
		if hasTables(url) {
			who, whose = "everybody who names these tables of this database, on any machine", ""
		}
		d.fine("crash detection", "the lock of a killed or disconnected process ends with its TTL")
	}
	d.fine("who it excludes", "%s", who)
	survives, fences, clock := g.Text()
	d.fine(whose+"what it survives", "%s", survives)
	d.fine(whose+"fences rise", "%s", fences)
	d.fine(whose+"leases end by", "%s", clock)
	d.fine(whose+"what would break it", "%s", g.Breaks)
}

// missing checks whether lk could create the missing file.
func (d *doctor) missing(file string) {
	folder := filepath.Dir(file)
	for {
		info, err := os.Stat(folder)
		switch {
		case errors.Is(err, fs.ErrNotExist) && folder != filepath.Dir(folder):
			folder = filepath.Dir(folder)
			continue
		case err != nil:
			d.wrong(lockkeeper.Broken, "opening it", err.Error(),
				"make "+folder+" a directory that you may enter, or name another file")
		case !info.IsDir():
			d.wrong(lockkeeper.Broken, "opening it", folder+" is not a directory",
				"name a file in a directory, or move that file away")
		case !mayWrite(folder):
			d.wrong(lockkeeper.Broken, "opening it", file+" does not exist, and you may not make it: "+folder+" is not writable",
				d.folderRemedy(folder))
		default:
			d.fine("opening it", "%s does not exist yet; the first lock makes it", file)
		}
		return
	}
}

// folderRemedy returns the remedy for a folder in which lk can't create files.
func (d *doctor) folderRemedy(folder string) string {
	if d.app.engineSource() == "the default" {
		return homeRemedy
	}
	return "make " + folder + " writable, or name another file"
}

// openRemedy returns the remedy for an engine that can't be opened.
func (d *doctor) openRemedy(err error, url string) string {
	file := fileOf(url)
	var refused *exit
	switch {
	case errors.As(err, &refused):
		return "do as it says"
	case hasTables(url):
		return databaseRemedy(err)
	case d.app.engineSource() == "the default" && !errors.Is(err, lockkeeper.ErrInvalid):
		return "see that " + file + " and its directory are yours to write; or " + homeRemedy
	case slices.Contains(schemeOf(url).Names, "redis"):
		return "start these redis-servers, or mend the network to them; a majority of them must answer"
	case file == "":
		return serverRemedy(err)
	case errors.Is(err, lockkeeper.ErrInvalid):
		return "name a file that is new, or one of lockkeeper's"
	}
	return "see that " + file +
		" and its directory are yours to write, on a local disk that is not full; or name another file"
}

// parent checks the enclosing run that LK_CLAIM names.
func (d *doctor) parent(ctx context.Context, client *connection, url string) {
	claim, named := os.Getenv("LK_CLAIM"), os.Getenv(engineVariable)
	const remedy = "unset LK_CLAIM, or begin a new shell: locks taken from here are not part of that run"
	ref, err := lockkeeper.ParseRef(claim)
	switch {
	case claim == "":
		d.fine("inside a run", "no: LK_CLAIM is not set")
	case err != nil:
		d.wrong(lockkeeper.Doubtful, "inside a run", fmt.Sprintf("LK_CLAIM is %q, which is no claim", claim), remedy)
	case named != url:
		d.wrong(lockkeeper.Doubtful, "inside a run",
			fmt.Sprintf("LK_CLAIM is %s, of another engine (%s): for this one it means nothing", claim,
				lockkeeper.RedactURL(named)), remedy)
	case client == nil:
		d.wrong(lockkeeper.Doubtful, "inside a run", "LK_CLAIM is "+claim+", and the engine can't tell whether it is held",
			remedy)
	default:
		for status, err := range client.List(ctx, lockkeeper.Query{Ref: ref, Brief: true}) {
			if err == nil && status.State == lockkeeper.Held {
				d.fine("inside a run", "%s", holdText(status))
				return
			}
		}
		d.wrong(lockkeeper.Doubtful, "inside a run", "LK_CLAIM is "+claim+", which is not held any longer", remedy)
	}
}

// state checks the folder of the default engine.
func (d *doctor) state() {
	if xdg := os.Getenv("XDG_STATE_HOME"); xdg != "" && !filepath.IsAbs(xdg) {
		d.wrong(lockkeeper.Doubtful, "state folder", "XDG_STATE_HOME is "+xdg+", which is not absolute and so is ignored",
			"set it to an absolute path, or unset it")
	}
	folder, err := stateFolder()
	if err != nil {
		d.wrong(lockkeeper.Doubtful, "state folder", "there is no home directory", homeRemedy)
		return
	}
	info, err := os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.fine("state folder", "%s does not exist yet; it comes with the first lock that needs it", folder)
	case err != nil:
		d.wrong(lockkeeper.Doubtful, "state folder", err.Error(), "make it a directory of yours")
	case !info.IsDir():
		d.wrong(lockkeeper.Doubtful, "state folder", folder+" is not a directory", "move that file away")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0:
		d.wrong(lockkeeper.Doubtful, "state folder",
			fmt.Sprintf("%s can be written by others (%s): they can remove your locks", folder, info.Mode().Perm()),
			"chmod go-w "+folder)
	case !mayWrite(folder):
		d.wrong(lockkeeper.Doubtful, "state folder", "you may not write to "+folder,
			"chown it to yourself: it may be left over from a sudo")
	default:
		d.fine("state folder", "%s", folder)
	}
}

func (d *doctor) ci() {
	ci := os.Getenv("CI")
	if ci == "" || ci == "false" {
		d.fine("CI", "no: CI is not set")
		return
	}
	if d.app.engineSource() == "the default" {
		d.wrong(lockkeeper.Doubtful, "CI", "no engine is named, so locks exclude "+defaultReach(),
			"name an engine that all jobs reach, such as a server (lk serve), with --engine or "+engineVariable)
		return
	}
	d.fine("CI", "an engine is named, by %s", d.app.engineSource())
}

// system reports what lk can't do on this operating system.
func (d *doctor) system() {
	name := runtime.GOOS + "/" + runtime.GOARCH
	if lacks := systemLacks(runtime.GOOS); lacks != "" {
		d.wrong(lockkeeper.Doubtful, "system", name+": "+lacks, "nothing: it can not be changed")
		return
	}
	d.fine("system", "%s: all that lk does works here", name)
}

// programs looks for other programs named lk in PATH.
func (d *doctor) programs() {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	found := []string{self}
	var others []string
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		file := filepath.Join(folder, "lk")
		if runtime.GOOS == "windows" {
			file += ".exe"
		}
		if info, err := os.Stat(file); err != nil || info.IsDir() || sameFile(file, found) {
			continue
		}
		found = append(found, file)
		others = append(others, file)
	}
	this := self + " (" + version() + ")"
	if len(others) > 0 {
		d.wrong(lockkeeper.Doubtful, "versions", "this is "+this+"; in PATH there is also "+strings.Join(others, ", "),
			"remove all but one, so that everybody runs the same; FILE version says which one it is")
		return
	}
	d.fine("versions", "%s is the only lk", this)
}

func sameFile(file string, as []string) bool {
	info, err := os.Stat(file)
	for _, other := range as {
		if there, e := os.Stat(other); err == nil && e == nil && os.SameFile(info, there) {
			return true
		}
	}
	return false
}

// clock checks the time of day. No lock depends on it, but people read it.
func (d *doctor) clock() {
	now := time.Now()
	if now.Year() < 2026 {
		d.wrong(lockkeeper.Doubtful, "time of day", now.Format(time.DateTime)+" can't be right",
			"set the clock: no lock depends on it, but what people read does")
		return
	}
	d.fine("time of day", "%s; no lock depends on it", now.Format(time.DateTime))
}

// counts counts the findings of each grade, and sorts the worst first.
func (d *doctor) counts() (counts [lockkeeper.Broken + 1]int) {
	slices.SortStableFunc(d.list, func(a, b lockkeeper.Finding) int { return int(b.Grade) - int(a.Grade) })
	for _, f := range d.list {
		counts[f.Grade]++
	}
	return counts
}

// report writes the findings that are not fine (with verbose all of them), the worst
// first, and a summary. Its error is exit code 1 if anything is broken.
func (d *doctor) report(to io.Writer, verbose bool) error {
	counts := d.counts()
	for _, f := range d.list {
		if f.Grade == lockkeeper.Fine && !verbose {
			continue
		}
		fmt.Fprintf(to, "%-9s %s: %s\n", f.Grade, f.Check, f.Detail)
		if f.Remedy != "" {
			fmt.Fprintf(to, "          what to do: %s\n", f.Remedy)
		}
	}
	summary, about := fmt.Sprintf("%d fine, %d doubtful, %d broken", counts[lockkeeper.Fine], counts[lockkeeper.Doubtful],
		counts[lockkeeper.Broken]), ""
	if counts[lockkeeper.Fine] == len(d.list) {
		summary = fmt.Sprintf("all is well: %s passed", plural(len(d.list), "check"))
	}
	if d.engine != "" {
		about = "; the engine is " + d.engine
	}
	fmt.Fprintf(to, "%s%s\n", summary, about)
	return doctorsExit(counts)
}

// reportJSON writes every finding, the worst first.
func (d *doctor) reportJSON(to io.Writer) error {
	counts := d.counts()
	for _, f := range d.list {
		if err := json.NewEncoder(to).Encode(f); err != nil {
			return err
		}
	}
	return doctorsExit(counts)
}

func doctorsExit(counts [lockkeeper.Broken + 1]int) error {
	if counts[lockkeeper.Broken] > 0 {
		return &exit{code: exitFailure}
	}
	return nil
}
