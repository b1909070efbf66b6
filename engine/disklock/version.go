package disklock

import (
	"errors"
	"runtime/debug"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

const modulePath = "github.com/lockkeeper/lockkeeper"

// writer returns the version of Lockkeeper in this program, which the journal stores for people.
func writer() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "lockkeeper (unknown version)"
	}
	version := ""
	if info.Main.Path == modulePath {
		version = info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == modulePath {
			version = m.Version
		}
	}
	if version == "" {
		version = "(devel)"
	}
	return "lockkeeper " + version
}

// unreadable returns the error for bytes that can't be decoded: another form, or damage.
func (r *recovered) unreadable(where string, err error) error {
	if form := new(record.FormError); errors.As(err, &form) {
		return lockkeeper.Invalid("%s, %s: %v: use %s, which wrote it, or a version that reads that form; nothing was "+
			"changed", r.path, where, form, r.writer)
	}
	return damagef("%s: %v", where, err)
}

// otherRules returns the error for an entry of other rules: under the rules of this program the
// same commands may grant other locks.
func (r *recovered) otherRules(where string, rules uint64) error {
	return lockkeeper.Invalid("%s, %s: %s wrote it under version %d of the rules, and did not end cleanly; this is %s "+
		"with "+
		"version %d, which may decide otherwise: open the directory with %[3]s and end that cleanly (TERM), so that only a "+
		"snapshot is left, and then use this program; nothing was changed",
		r.path, where, r.writer, rules, writer(), table.RulesVersion)
}

// laterRules returns the error for a snapshot of later rules, which this program may misinterpret.
func (r *recovered) laterRules(where string, rules uint64) error {
	return lockkeeper.Invalid("%s, %s: %s wrote it under version %d of the rules; this is %s, which knows versions up "+
		"to %d: "+
		"use %[3]s or a later version; nothing was changed",
		r.path, where, r.writer, rules, writer(), table.RulesVersion)
}
